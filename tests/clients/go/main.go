// Drives a server through go-redis, as a user's program would, over every data type, and checks each reply.
// Database 9 is emptied before and after each check; nothing else is touched. Runs on RESP2 and on RESP3.
//
//	round PORT [CA CERTIFICATE KEY]     (the files: over TLS)
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"math"
	"os"
	"reflect"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

var ctx = context.Background()

// equal fails the running check unless err is nil and got is wanted.
func equal[T any](got T, err error, wanted T) {
	if err != nil {
		panic(fmt.Sprintf("%v, wanted %v", err, wanted))
	}
	if !reflect.DeepEqual(got, wanted) {
		panic(fmt.Sprintf("got %v, wanted %v", got, wanted))
	}
}

// is fails the running check unless the command replied wanted.
func is[T any](command interface{ Result() (T, error) }, wanted T) {
	got, err := command.Result()
	equal(got, err, wanted)
}

// fails fails the running check unless err says words.
func fails(err error, words string) {
	if err == nil || !strings.Contains(err.Error(), words) {
		panic(fmt.Sprintf("got the error %v, wanted one that says %q", err, words))
	}
}

// sorted is the reply in order.
func sorted(command *redis.StringSliceCmd) []string {
	got, err := command.Result()
	if err != nil {
		panic(err)
	}
	sort.Strings(got)
	return got
}

var checks = []struct {
	name string
	run  func(r *redis.Client)
}{
	{"strings", stringValues},
	{"keys", keys},
	{"scanning", scanning},
	{"lists", lists},
	{"hashes", hashes},
	{"sets", sets},
	{"sorted sets", sortedSets},
	{"streams", streams},
	{"stream groups", streamGroups},
	{"bitmaps", bitmaps},
	{"hyperloglogs", hyperLogLogs},
	{"geo", geo},
	{"sorting", sorting},
	{"hash field expiry", hashFieldExpiry},
	{"pipelines", pipelines},
	{"transactions", transactions},
	{"counters under watch", watchedCounters},
	{"publish and subscribe", publishAndSubscribe},
	{"waiting", waiting},
	{"many connections", manyConnections},
}

func stringValues(r *redis.Client) {
	is[string](r.Set(ctx, "a", 1, 0), "OK")
	is[string](r.Get(ctx, "a"), "1")
	fails(r.Get(ctx, "none").Err(), redis.Nil.Error())
	is[bool](r.SetNX(ctx, "a", 2, 0), false)
	is[string](r.SetArgs(ctx, "a", 2, redis.SetArgs{Get: true, TTL: time.Minute}), "1")
	is[int64](r.IncrBy(ctx, "n", 41), 41)
	is[float64](r.IncrByFloat(ctx, "f", 2.5), 2.5)
	is[int64](r.Append(ctx, "s", "Hello"), 5)
	is[int64](r.SetRange(ctx, "s", 5, " World"), 11)
	is[string](r.GetRange(ctx, "s", -5, -1), "World")
	is[string](r.MSet(ctx, "k1", "v1", "k2", "v2"), "OK")
	is[[]any](r.MGet(ctx, "k1", "none", "k2"), []any{"v1", nil, "v2"})
	is[string](r.GetDel(ctx, "k1"), "v1")
	is[string](r.GetEx(ctx, "k2", time.Minute), "v2")
	is[string](r.Set(ctx, "bytes", "\x00\xff\r\n", 0), "OK")
	is[string](r.Get(ctx, "bytes"), "\x00\xff\r\n")
	fails(r.Incr(ctx, "s").Err(), "not an integer")
}

func keys(r *redis.Client) {
	is[string](r.MSet(ctx, "x", 1, "y", 2), "OK")
	is[int64](r.Exists(ctx, "x", "y", "none"), 2)
	is[string](r.Type(ctx, "x"), "string")
	is[string](r.Rename(ctx, "x", "z"), "OK")
	is[bool](r.Expire(ctx, "z", 100*time.Second), true)
	is[time.Duration](r.TTL(ctx, "z"), 100*time.Second)
	is[bool](r.Persist(ctx, "z"), true)
	is[int64](r.Copy(ctx, "z", "twin", 9, false), 1)
	is[int64](r.Del(ctx, "z", "twin"), 2)
	is[int64](r.Unlink(ctx, "y"), 1)
	is[int64](r.DBSize(ctx), 0)
	is[string](r.Set(ctx, "short", 1, time.Millisecond), "OK")
	for r.Exists(ctx, "short").Val() != 0 {
	}
}

func scanning(r *redis.Client) {
	_, err := r.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i := 0; i < 500; i++ {
			p.Set(ctx, fmt.Sprintf("scan:%d", i), i, 0)
		}
		return nil
	})
	equal(0, err, 0)
	seen := map[string]bool{}
	keys := r.Scan(ctx, 0, "scan:*", 37).Iterator()
	for keys.Next(ctx) {
		seen[keys.Val()] = true
	}
	equal(len(seen), keys.Err(), 500)
}

func lists(r *redis.Client) {
	is[int64](r.RPush(ctx, "l", "a", "b", "c"), 3)
	is[int64](r.LPush(ctx, "l", "z"), 4)
	is[[]string](r.LRange(ctx, "l", 0, -1), []string{"z", "a", "b", "c"})
	is[int64](r.LInsertBefore(ctx, "l", "b", "ab"), 5)
	is[int64](r.LPos(ctx, "l", "b", redis.LPosArgs{}), 3)
	is[string](r.LSet(ctx, "l", 0, "y"), "OK")
	is[int64](r.LRem(ctx, "l", 0, "ab"), 1)
	is[string](r.LMove(ctx, "l", "m", "LEFT", "RIGHT"), "y")
	is[[]string](r.LPopCount(ctx, "l", 2), []string{"a", "b"})
	is[string](r.RPop(ctx, "l"), "c")
	name, values, err := r.LMPop(ctx, "left", 1, "l", "m").Result()
	equal(append([]string{name}, values...), err, []string{"m", "y"})
	is[string](r.Set(ctx, "s", "x", 0), "OK")
	fails(r.LPush(ctx, "s", "x").Err(), "WRONGTYPE")
}

func hashes(r *redis.Client) {
	is[int64](r.HSet(ctx, "h", "f", 1, "g", 2), 2)
	is[map[string]string](r.HGetAll(ctx, "h"), map[string]string{"f": "1", "g": "2"})
	is[[]any](r.HMGet(ctx, "h", "f", "none"), []any{"1", nil})
	is[int64](r.HIncrBy(ctx, "h", "f", 4), 5)
	is[int64](r.HDel(ctx, "h", "g"), 1)
	is[bool](r.HExists(ctx, "h", "f"), true)
	is[[]string](r.HRandField(ctx, "h", 3), []string{"f"})
	is[[]redis.KeyValue](r.HRandFieldWithValues(ctx, "h", 1), []redis.KeyValue{{Key: "f", Value: "5"}})
	fields, cursor, err := r.HScan(ctx, "h", 0, "", 0).Result()
	equal(fields, err, []string{"f", "5"})
	equal(cursor, err, 0)
}

func sets(r *redis.Client) {
	is[int64](r.SAdd(ctx, "a", 1, 2, 3), 3)
	is[int64](r.SAdd(ctx, "b", 2, 3, "x"), 3)
	equal(sorted(r.SInter(ctx, "a", "b")), nil, []string{"2", "3"})
	equal(sorted(r.SUnion(ctx, "a", "b")), nil, []string{"1", "2", "3", "x"})
	is[[]string](r.SDiff(ctx, "a", "b"), []string{"1"})
	is[int64](r.SInterCard(ctx, 0, "a", "b"), 2)
	is[[]bool](r.SMIsMember(ctx, "a", 1, 9), []bool{true, false})
	is[bool](r.SMove(ctx, "a", "b", 1), true)
	is[map[string]struct{}](r.SMembersMap(ctx, "a"), map[string]struct{}{"2": {}, "3": {}})
	equal(len(sorted(r.SPopN(ctx, "b", 10))), nil, 4)
}

func sortedSets(r *redis.Client) {
	members := []redis.Z{{Score: 1, Member: "a"}, {Score: 2.5, Member: "b"}, {Score: math.Inf(1), Member: "c"}}
	is[int64](r.ZAdd(ctx, "z", members...), 3)
	is[[]redis.Z](r.ZRangeWithScores(ctx, "z", 0, -1), members)
	is[[]string](r.ZRangeByScore(ctx, "z", &redis.ZRangeBy{Min: "(1", Max: "3"}), []string{"b"})
	is[int64](r.ZRank(ctx, "z", "b"), 1)
	is[redis.RankScore](r.ZRankWithScore(ctx, "z", "b"), redis.RankScore{Rank: 1, Score: 2.5})
	is[float64](r.ZIncrBy(ctx, "z", 2, "a"), 3)
	fails(r.ZScore(ctx, "z", "none").Err(), redis.Nil.Error())
	is[int64](r.ZAdd(ctx, "y", redis.Z{Score: 10, Member: "a"}), 1)
	both := &redis.ZStore{Keys: []string{"z", "y"}, Weights: []float64{1, 2}}
	is[int64](r.ZUnionStore(ctx, "u", both), 3)
	is[float64](r.ZScore(ctx, "u", "a"), 23)
	is[[]redis.Z](r.ZInterWithScores(ctx, both), []redis.Z{{Score: 23, Member: "a"}})
	is[[]redis.Z](r.ZPopMax(ctx, "z"), members[2:])
	is[int64](r.ZRemRangeByRank(ctx, "z", 0, -1), 2)
}

func streams(r *redis.Client) {
	add := func(id, value string) {
		is[string](r.XAdd(ctx, &redis.XAddArgs{Stream: "s", ID: id, Values: []string{"f", value}}), id)
	}
	add("1-1", "v")
	add("1-2", "w")
	is[int64](r.XLen(ctx, "s"), 2)
	first := redis.XMessage{ID: "1-1", Values: map[string]any{"f": "v"}}
	second := redis.XMessage{ID: "1-2", Values: map[string]any{"f": "w"}}
	is[[]redis.XMessage](r.XRange(ctx, "s", "-", "+"), []redis.XMessage{first, second})
	is[[]redis.XMessage](r.XRevRangeN(ctx, "s", "+", "-", 1), []redis.XMessage{second})
	read := &redis.XReadArgs{Streams: []string{"s", "1-1"}, Block: -1}
	is[[]redis.XStream](r.XRead(ctx, read), []redis.XStream{{Stream: "s", Messages: []redis.XMessage{second}}})
	is[int64](r.XDel(ctx, "s", "1-1"), 1)
	is[int64](r.XTrimMaxLen(ctx, "s", 0), 1)
}

func streamGroups(r *redis.Client) {
	for _, id := range []string{"1-1", "1-2"} {
		is[string](r.XAdd(ctx, &redis.XAddArgs{Stream: "s", ID: id, Values: []string{"f", id}}), id)
	}
	is[string](r.XGroupCreate(ctx, "s", "g", "0"), "OK")
	fails(r.XGroupCreate(ctx, "s", "g", "0").Err(), "BUSYGROUP")
	read, err := r.XReadGroup(ctx, &redis.XReadGroupArgs{
		Group: "g", Consumer: "alice", Streams: []string{"s", ">"}, Block: -1,
	}).Result()
	equal(err, nil, nil)
	equal(len(read[0].Messages), nil, 2)
	is[int64](r.XAck(ctx, "s", "g", "1-1"), 1)
	claim := &redis.XClaimArgs{Stream: "s", Group: "g", Consumer: "bob", Messages: []string{"1-2"}}
	is[[]redis.XMessage](r.XClaim(ctx, claim), []redis.XMessage{{ID: "1-2", Values: map[string]any{"f": "1-2"}}})
	pending, err := r.XPending(ctx, "s", "g").Result()
	equal(pending.Consumers, err, map[string]int64{"bob": 1})
	is[int64](r.XGroupDelConsumer(ctx, "s", "g", "bob"), 1)
	is[int64](r.XGroupDestroy(ctx, "s", "g"), 1)
}

func bitmaps(r *redis.Client) {
	is[int64](r.SetBit(ctx, "b", 7, 1), 0)
	is[int64](r.GetBit(ctx, "b", 7), 1)
	is[int64](r.BitCount(ctx, "b", nil), 1)
	is[int64](r.BitPos(ctx, "b", 1), 7)
	is[string](r.Set(ctx, "c", "\x81", 0), "OK")
	is[int64](r.BitOpAnd(ctx, "d", "b", "c"), 1)
	is[string](r.Get(ctx, "d"), "\x01")
	is[[]int64](r.BitField(ctx, "b", "SET", "u8", 8, 255, "INCRBY", "u8", 8, 10), []int64{0, 9})
}

func hyperLogLogs(r *redis.Client) {
	is[int64](r.PFAdd(ctx, "p", "a", "b", "c"), 1)
	is[int64](r.PFAdd(ctx, "q", "c", "d"), 1)
	is[int64](r.PFCount(ctx, "p", "q"), 4)
	is[string](r.PFMerge(ctx, "all", "p", "q"), "OK")
	is[int64](r.PFCount(ctx, "all"), 4)
}

func geo(r *redis.Client) {
	palermo := &redis.GeoLocation{Name: "Palermo", Longitude: 13.361389, Latitude: 38.115556}
	catania := &redis.GeoLocation{Name: "Catania", Longitude: 15.087269, Latitude: 37.502669}
	is[int64](r.GeoAdd(ctx, "g", palermo, catania), 2)
	distance, err := r.GeoDist(ctx, "g", "Palermo", "Catania", "km").Result()
	equal(math.Abs(distance-166.2742) < 0.001, err, true)
	is[[]string](r.GeoHash(ctx, "g", "Palermo"), []string{"sqc8b49rny0"})
	near := &redis.GeoSearchQuery{Longitude: 15, Latitude: 37, Radius: 100, RadiusUnit: "km"}
	is[[]string](r.GeoSearch(ctx, "g", near), []string{"Catania"})
	box := redis.GeoSearchQuery{Member: "Palermo", BoxWidth: 400, BoxHeight: 400, BoxUnit: "km"}
	is[int64](r.GeoSearchStore(ctx, "g", "h", &redis.GeoSearchStoreQuery{GeoSearchQuery: box}), 2)
}

func sorting(r *redis.Client) {
	is[int64](r.RPush(ctx, "l", 3, 1, 2), 3)
	is[[]string](r.Sort(ctx, "l", &redis.Sort{Order: "DESC"}), []string{"3", "2", "1"})
	is[string](r.MSet(ctx, "w1", 9, "w2", 5, "w3", 7, "n2", "two", "n3", "three"), "OK")
	by := &redis.Sort{By: "w*", Get: []string{"#", "n*"}, Count: 2}
	is[[]string](r.Sort(ctx, "l", by), []string{"2", "two", "3", "three"})
	is[int64](r.SortStore(ctx, "l", "sorted", &redis.Sort{}), 3)
}

func hashFieldExpiry(r *redis.Client) {
	is[int64](r.HSet(ctx, "h", "f", 1, "g", 2), 2)
	is[[]int64](r.HExpire(ctx, "h", 100*time.Second, "f", "none"), []int64{1, -2})
	is[[]int64](r.HTTL(ctx, "h", "f", "g"), []int64{100, -1})
	is[[]int64](r.HPersist(ctx, "h", "f"), []int64{1})
	is[[]int64](r.HPExpire(ctx, "h", time.Millisecond, "g"), []int64{1})
	for r.HExists(ctx, "h", "g").Val() {
	}
	is[int64](r.HLen(ctx, "h"), 1)
}

func pipelines(r *redis.Client) {
	pipe := r.Pipeline()
	pipe.Set(ctx, "a", 1, 0)
	incremented := pipe.Incr(ctx, "a")
	refused := pipe.LPush(ctx, "a", "x")
	last := pipe.Get(ctx, "a")
	_, err := pipe.Exec(ctx)
	fails(err, "WRONGTYPE")
	fails(refused.Err(), "WRONGTYPE")
	is[int64](incremented, 2)
	is[string](last, "2")
}

func transactions(r *redis.Client) {
	pipe := r.TxPipeline()
	pipe.Set(ctx, "a", 1, 0)
	incremented := pipe.Incr(ctx, "a")
	_, err := pipe.Exec(ctx)
	fits(err)
	is[int64](incremented, 2)
	interrupted := r.Watch(ctx, func(tx *redis.Tx) error {
		is[string](tx.Get(ctx, "a"), "2")
		fits(r.Set(ctx, "a", "other", 0).Err())
		_, err := tx.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
			return pipe.Set(ctx, "a", "mine", 0).Err()
		})
		return err
	}, "a")
	if interrupted != redis.TxFailedErr {
		panic(fmt.Sprintf("a changed key did not stop the transaction: %v", interrupted))
	}
	is[string](r.Get(ctx, "a"), "other")
}

// watchedCounters loses no increment to another, by go-redis' helper for optimistic locks.
func watchedCounters(r *redis.Client) {
	increment := func() error {
		return r.Watch(ctx, func(tx *redis.Tx) error {
			n, err := tx.Get(ctx, "n").Int()
			if err != nil && err != redis.Nil {
				return err
			}
			_, err = tx.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
				pipe.Set(ctx, "n", n+1, 0)
				return nil
			})
			return err
		}, "n")
	}
	var all sync.WaitGroup
	for i := 0; i < 4; i++ {
		all.Add(1)
		go func() {
			defer all.Done()
			for done := 0; done < 50; {
				err := increment()
				if err == nil {
					done++
				} else if err != redis.TxFailedErr {
					panic(err)
				}
			}
		}()
	}
	all.Wait()
	is[string](r.Get(ctx, "n"), "200")
}

// publishAndSubscribe hears channels, patterns and shard channels, each message once and in order.
func publishAndSubscribe(r *redis.Client) {
	all := r.Subscribe(ctx, "news", "more")
	defer all.Close()
	fits(all.PSubscribe(ctx, "n*"))
	shard := r.SSubscribe(ctx, "part")
	defer shard.Close()
	for i := 0; i < 3; i++ {
		_, err := all.ReceiveTimeout(ctx, 20*time.Second)
		fits(err)
	}
	_, err := shard.ReceiveTimeout(ctx, 20*time.Second)
	fits(err)
	counts, err := r.PubSubNumSub(ctx, "news", "none").Result()
	equal(counts, err, map[string]int64{"news": 1, "none": 0})
	for n := 0; n < 100; n++ {
		is[int64](r.Publish(ctx, "news", fmt.Sprint(n)), 2)
		is[int64](r.Publish(ctx, "more", fmt.Sprint(n)), 1)
		is[int64](r.SPublish(ctx, "part", fmt.Sprint(n)), 1)
	}
	for n := 0; n < 100; n++ {
		for _, wanted := range []string{"news ", "news n*", "more "} {
			got, err := all.ReceiveMessage(ctx)
			fits(err)
			equal(got.Channel+" "+got.Pattern+" "+got.Payload, nil, fmt.Sprint(wanted, " ", n))
		}
		got, err := shard.ReceiveMessage(ctx)
		fits(err)
		equal(got.Payload, nil, fmt.Sprint(n))
	}
	fits(all.Unsubscribe(ctx, "news"))
	fits(all.Ping(ctx, "still here"))
	for {
		reply, err := all.ReceiveTimeout(ctx, 20*time.Second)
		fits(err)
		if pong, ok := reply.(*redis.Pong); ok {
			equal(pong.Payload, nil, "still here")
			break
		}
	}
	is[int64](r.Publish(ctx, "news", "x"), 1)
}

func waiting(r *redis.Client) {
	served := make(chan []string)
	go func() { served <- r.BLPop(ctx, 20*time.Second, "l", "m").Val() }()
	time.AfterFunc(20*time.Millisecond, func() { r.RPush(ctx, "m", "x") })
	if got := fmt.Sprint(<-served); got != "[m x]" {
		panic("BLPOP got " + got)
	}
	entries := make(chan []redis.XStream)
	go func() {
		entries <- r.XRead(ctx, &redis.XReadArgs{Streams: []string{"s", "0"}, Block: 20 * time.Second}).Val()
	}()
	time.AfterFunc(20*time.Millisecond, func() {
		r.XAdd(ctx, &redis.XAddArgs{Stream: "s", ID: "1-1", Values: []string{"f", "v"}})
	})
	if got := fmt.Sprint(<-entries); got != "[{s [{1-1 map[f:v]}]}]" {
		panic("XREAD got " + got)
	}
}

// fits ends the check unless err is nil.
func fits(err error) {
	if err != nil {
		panic(err)
	}
}

func manyConnections(r *redis.Client) {
	var all sync.WaitGroup
	for i := 0; i < 20; i++ {
		all.Add(1)
		go func() {
			defer all.Done()
			for j := 0; j < 200; j++ {
				r.Incr(ctx, "n")
			}
		}()
	}
	all.Wait()
	is[string](r.Get(ctx, "n"), "4000")
}

// encryption is the TLS of a client with these files: authority, certificate, key. None without files.
func encryption(files []string) *tls.Config {
	if len(files) == 0 {
		return nil
	}
	authority, err := os.ReadFile(files[0])
	if err != nil {
		panic(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority)
	own, err := tls.LoadX509KeyPair(files[1], files[2])
	if err != nil {
		panic(err)
	}
	return &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{own}, ServerName: "localhost"}
}

func main() {
	for protocol := 2; protocol <= 3; protocol++ {
		r := redis.NewClient(&redis.Options{
			Addr: "127.0.0.1:" + os.Args[1], DB: 9, Protocol: protocol, TLSConfig: encryption(os.Args[2:]),
		})
		for _, check := range checks {
			r.FlushDB(ctx)
			if problem := attempt(check.run, r); problem != nil {
				fmt.Printf("%s, RESP%d: %v\n", check.name, protocol, problem)
				os.Exit(1)
			}
			r.FlushDB(ctx)
		}
		r.Close()
	}
	fmt.Printf("go-redis: %d checks passed, on RESP2 and RESP3\n", len(checks))
}

// attempt is what run panicked with, nil when it did not.
func attempt(run func(*redis.Client), r *redis.Client) (problem any) {
	defer func() { problem = recover() }()
	run(r)
	return nil
}
