package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

// line is a job and when it was sent, in milliseconds.
type line struct {
	Job  int   `json:"job"`
	Sent int64 `json:"sent"`
}

// noteLine does a job and appends it to the ledger, with when it was done.
func noteLine(ledger string) func(context.Context, *asynq.Task) error {
	return func(_ context.Context, task *asynq.Task) error {
		var done line
		must(json.Unmarshal(task.Payload(), &done))
		time.Sleep(time.Duration(done.Job%5) * time.Millisecond)
		file, err := os.OpenFile(ledger, os.O_WRONLY|os.O_APPEND, 0)
		must(err)
		defer file.Close()
		_, err = fmt.Fprintf(file, "%d %d %d\n", done.Job, done.Sent, time.Now().UnixMilli())
		return err
	}
}

// crashes sends jobs, or does them, while workers and server are killed; see crashes.rs of xtask. What a killed worker
// held is its own until its lease is over, half a minute later, and is looked for each minute: none is lost.
//
//	asynq send PORT LEDGER JOBS
//	asynq work PORT LEDGER
func crashes(task, port, ledger string) {
	address := "127.0.0.1:" + port
	if task == "work" {
		config := asynq.Config{
			Concurrency:       4,
			TaskCheckInterval: 50 * time.Millisecond,
			RetryDelayFunc:    func(int, error, *asynq.Task) time.Duration { return 10 * time.Millisecond },
			LogLevel:          asynq.FatalLevel,
		}
		mux := asynq.NewServeMux()
		mux.HandleFunc("work", noteLine(ledger))
		must(asynq.NewServer(asynq.RedisClientOpt{Addr: address}, config).Run(mux))
		return
	}
	client := asynq.NewClientFromRedisClient(redis.NewClient(&redis.Options{Addr: address, MaxRetries: -1}))
	for job := 0; job < number(os.Args[4]); job++ {
		payload, err := json.Marshal(line{Job: job, Sent: time.Now().UnixMilli()})
		must(err)
		for {
			if _, err := client.Enqueue(asynq.NewTask("work", payload, asynq.MaxRetry(100))); err == nil {
				break
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
}
