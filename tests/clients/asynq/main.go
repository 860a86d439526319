// Runs jobs through asynq, which is Lua scripts over keys in one hash slot, half of which they name themselves.
//
// Workers are killed at random, all of them at last. What they held is theirs until their lease is over, half a
// minute after their last sign of life, and is looked for by a worker that starts: here leases are put back by that
// time. asynq promises each task at least once: those done again are the ones that a killed worker held. A task that
// is unique, or whose name is taken, is refused.
//
//	asynq PORT DATABASE SEED        (workers are started with one more word)
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

const (
	jobs        = 1000
	workers     = 3
	concurrency = 4
	kills       = 5
	limit       = 120 * time.Second
	// Each task is kept so long after it was done, for counting.
	retention = 10 * time.Minute
)

var (
	ctx      = context.Background()
	address  = "127.0.0.1:" + os.Args[1]
	database = selected()
	server   = asynq.RedisClientOpt{Addr: address, DB: database}
	queues   = map[string]int{"default": 1, "critical": 3}
	store    = redis.NewClient(&redis.Options{Addr: address, DB: database})
)

// must ends the program on an error.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

// check ends the program unless it holds.
func check(holds bool, format string, values ...any) {
	if !holds {
		panic(fmt.Sprintf(format, values...))
	}
}

// number is what a word says.
func number(word string) int {
	value, err := strconv.Atoi(word)
	must(err)
	return value
}

// isCrashes says whether the words are those of crashes.
func isCrashes() bool {
	return os.Args[1] == "send" || os.Args[1] == "work"
}

// selected is the database on the command line.
func selected() int {
	if isCrashes() {
		return 0
	}
	return number(os.Args[2])
}

// until waits for a condition.
func until(condition func() bool, what func() string) {
	for end := time.Now().Add(limit); !condition(); time.Sleep(10 * time.Millisecond) {
		check(time.Now().Before(end), "not within %v: %s", limit, what())
	}
}

// note counts in the ledger that a job was done.
func note(job int) error {
	return store.HIncrBy(ctx, "ledger", strconv.Itoa(job), 1).Err()
}

// square does a job. Some fail, and are tried again.
func square(ctx context.Context, task *asynq.Task) error {
	var job int
	must(json.Unmarshal(task.Payload(), &job))
	if retried, _ := asynq.GetRetryCount(ctx); job%50 == 0 && retried == 0 {
		return errors.New("on purpose")
	}
	time.Sleep(time.Duration(job%5) * time.Millisecond)
	if err := note(job); err != nil {
		return err
	}
	_, err := task.ResultWriter().Write([]byte(strconv.Itoa(job * job)))
	return err
}

// squares does the jobs of a group.
func squares(_ context.Context, task *asynq.Task) error {
	var group []int
	must(json.Unmarshal(task.Payload(), &group))
	for _, job := range group {
		if err := note(job); err != nil {
			return err
		}
	}
	return nil
}

// together makes one task of a group's.
func together(_ string, tasks []*asynq.Task) *asynq.Task {
	group := make([]int, len(tasks))
	for at, task := range tasks {
		must(json.Unmarshal(task.Payload(), &group[at]))
	}
	payload, err := json.Marshal(group)
	must(err)
	return asynq.NewTask("squares", payload, asynq.Retention(retention))
}

// work is a worker.
func work() {
	mux := asynq.NewServeMux()
	mux.HandleFunc("square", square)
	mux.HandleFunc("squares", squares)
	must(asynq.NewServer(server, asynq.Config{
		Concurrency:              concurrency,
		Queues:                   queues,
		TaskCheckInterval:        50 * time.Millisecond,
		DelayedTaskCheckInterval: 200 * time.Millisecond,
		RetryDelayFunc:           func(int, error, *asynq.Task) time.Duration { return 10 * time.Millisecond },
		GroupAggregator:          asynq.GroupAggregatorFunc(together),
		GroupGracePeriod:         time.Second,
		GroupMaxSize:             20,
		LogLevel:                 asynq.FatalLevel,
	}).Run(mux))
}

// start starts a worker as a process of its own, which ends with this one.
func start() *exec.Cmd {
	worker := exec.Command(os.Args[0], append(os.Args[1:4], "work")...)
	worker.Stdout, worker.Stderr = os.Stdout, os.Stderr
	worker.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	must(worker.Start())
	return worker
}

// kill ends a worker in the middle of its work.
func kill(worker *exec.Cmd) {
	must(worker.Process.Kill())
	err := worker.Wait()
	check(worker.ProcessState.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL, "a worker had ended: %v", err)
}

// send enqueues all jobs: in two queues, some later, some in groups, some unique.
func send(chance *rand.Rand) {
	client := asynq.NewClient(server)
	defer client.Close()
	for job := 0; job < jobs; job++ {
		options := []asynq.Option{asynq.MaxRetry(20), asynq.Retention(retention)}
		again := error(nil)
		switch job % 10 {
		case 0, 1:
			options = append(options, asynq.ProcessIn(time.Duration(chance.Intn(2000))*time.Millisecond))
		case 2:
			options = append(options, asynq.Group("squares"))
		case 3:
			options, again = append(options, asynq.Unique(time.Hour)), asynq.ErrDuplicateTask
		case 4:
			options, again = append(options, asynq.TaskID(strconv.Itoa(job))), asynq.ErrTaskIDConflict
		case 5, 6, 7:
			options = append(options, asynq.Queue("critical"))
		}
		task := asynq.NewTask("square", []byte(strconv.Itoa(job)))
		// A unique task may be sent again once it is done: a delayed one is not by then.
		if again != nil {
			options = append(options, asynq.ProcessIn(time.Second))
		}
		_, err := client.Enqueue(task, options...)
		must(err)
		if again != nil {
			_, err = client.Enqueue(task, options...)
			check(errors.Is(err, again), "%v for a task that is there already", err)
		}
	}
}

// done is how many jobs were done.
func done() int {
	return int(store.HLen(ctx, "ledger").Val())
}

// putBackLeases ends the leases of killed workers.
func putBackLeases() {
	for queue := range queues {
		for _, kind := range []string{"lease", "aggregation_sets"} {
			key := fmt.Sprintf("asynq:{%s}:%s", queue, kind)
			for _, name := range store.ZRange(ctx, key, 0, -1).Val() {
				must(store.ZAdd(ctx, key, redis.Z{Score: 1, Member: name}).Err())
			}
		}
	}
}

// left are the tasks of a queue that are not done, and how many are.
func left(inspector *asynq.Inspector, queue string) (int, int) {
	info, err := inspector.GetQueueInfo(queue)
	must(err)
	left := info.Pending + info.Active + info.Scheduled + info.Retry + info.Archived + info.Aggregating
	return left, info.Completed
}

func main() {
	if isCrashes() {
		crashes(os.Args[1], os.Args[2], os.Args[3])
		return
	}
	if len(os.Args) > 4 {
		work()
		return
	}
	// Workers end with the thread that started them.
	runtime.LockOSThread()
	must(store.FlushDB(ctx).Err())
	chance := rand.New(rand.NewSource(int64(number(os.Args[3]))))
	fleet := make([]*exec.Cmd, workers)
	for at := range fleet {
		fleet[at] = start()
	}
	send(chance)
	for n := 0; n < kills; n++ {
		moment := jobs/10 + n*jobs/10 + chance.Intn(jobs/10)
		until(func() bool { return done() >= moment }, func() string { return fmt.Sprintf("%d of %d jobs", done(), moment) })
		victim := chance.Intn(workers)
		kill(fleet[victim])
		fleet[victim] = start()
	}
	time.Sleep(time.Duration(chance.Intn(200)) * time.Millisecond)
	for _, worker := range fleet {
		kill(worker)
	}
	putBackLeases()
	for at := range fleet {
		fleet[at] = start()
	}
	until(func() bool { return done() >= jobs }, func() string { return fmt.Sprintf("%d of %d jobs", done(), jobs) })
	inspector := asynq.NewInspector(server)
	completed := 0
	for queue := range queues {
		size := func() int { size, _ := left(inspector, queue); return size }
		until(func() bool { return size() == 0 }, func() string { return fmt.Sprintf("%d tasks left", size()) })
		_, count := left(inspector, queue)
		completed += count
	}
	for _, worker := range fleet {
		kill(worker)
	}
	ledger := store.HVals(ctx, "ledger").Val()
	doubled := -len(ledger)
	for _, count := range ledger {
		doubled += number(count)
	}
	// A task of a group is up to twenty jobs.
	check(len(ledger) == jobs, "%d of %d jobs", len(ledger), jobs)
	check(doubled <= (kills+workers)*concurrency*2+20, "%d jobs were done again", doubled)
	check(completed >= jobs*9/10+jobs/10/20, "%d tasks are completed", completed)
	fmt.Printf("asynq: %d jobs done, %d again after %d kills\n", jobs, doubled, kills+workers)
	must(store.FlushDB(ctx).Err())
}
