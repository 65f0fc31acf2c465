package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// suite has the parts common to all cases: clients on one bootstrap address, and the result lines.
// A failed check panics, so that a case is straight-line code; run recovers.
type suite struct {
	bootstrap string
	secure    []kgo.Opt
	plain     *kgo.Client
	admin     *kadm.Client
	failures  int
}

var background = context.Background()

// newSuite takes what each client needs to connect, beyond the address.
func newSuite(bootstrap string, secure ...kgo.Opt) *suite {
	client, err := kgo.NewClient(append(secure, kgo.SeedBrokers(bootstrap))...)
	must(err)
	return &suite{bootstrap: bootstrap, secure: secure, plain: client, admin: kadm.NewClient(client)}
}

func (s *suite) run(name string, body func()) {
	defer func() {
		failure := recover()
		if failure == nil {
			fmt.Printf("CASE\t%s\tok\t\n", name)
			return
		}
		s.failures++
		fmt.Fprintf(os.Stderr, "%s: %v\n%s\n", name, failure, debug.Stack())
		fmt.Printf("CASE\t%s\tfail\t%s\n", name, oneLine(fmt.Sprint(failure)))
	}()
	body()
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func value[T any](v T, err error) T {
	must(err)
	return v
}

func check(holds bool, format string, arguments ...any) {
	if !holds {
		panic(fmt.Errorf(format, arguments...))
	}
}

func same(expected, actual any, what string) {
	if e, ok := expected.([]byte); ok {
		if a, ok := actual.([]byte); ok && bytes.Equal(e, a) && (e == nil) == (a == nil) {
			return
		}
	}
	if !reflect.DeepEqual(expected, actual) {
		panic(fmt.Errorf("%s: expected %v, got %v", what, expected, actual))
	}
}

func is(expected, actual error) {
	if !errors.Is(actual, expected) {
		panic(fmt.Errorf("expected %v, got %v", expected, actual))
	}
}

func eventually(what string, holds func() bool) {
	for giveUp := time.Now().Add(time.Minute); !holds(); time.Sleep(20 * time.Millisecond) {
		check(time.Now().Before(giveUp), "not within a minute: %s", what)
	}
}

func (s *suite) client(options ...kgo.Opt) *kgo.Client {
	base := []kgo.Opt{kgo.SeedBrokers(s.bootstrap), kgo.FetchMaxWait(500 * time.Millisecond)}
	base = append(base, s.secure...)
	return value(kgo.NewClient(append(base, options...)...))
}

func (s *suite) createTopic(name string, partitions int32, configs ...string) {
	entries := map[string]*string{}
	for i := 0; i < len(configs); i += 2 {
		entries[configs[i]] = &configs[i+1]
	}
	response, err := s.admin.CreateTopic(background, partitions, 1, entries, name)
	must(err)
	must(response.Err)
	// Apache Kafka answers NOT_LEADER_OR_FOLLOWER for a moment: the controller is ahead of the broker.
	eventually(name+" is served", func() bool {
		ends, err := s.admin.ListEndOffsets(background, name)
		return err == nil && ends.Error() == nil && len(ends[name]) == int(partitions)
	})
}

// fill writes count records value-0, value-1, ... to one partition, or round robin if it is negative.
func (s *suite) fill(topic string, partition int32, partitions int, count int) {
	client := s.client(kgo.RecordPartitioner(kgo.ManualPartitioner()))
	defer client.Close()
	var records []*kgo.Record
	for i := range count {
		at := partition
		if partition < 0 {
			at = int32(i % partitions)
		}
		n := strconv.Itoa(i)
		records = append(records, &kgo.Record{Topic: topic, Partition: at, Key: []byte("key-" + n), Value: []byte("value-" + n)})
	}
	must(client.ProduceSync(background, records...).FirstErr())
}

// take polls until count records have arrived, then once more to check that there are no others.
func take(client *kgo.Client, count int) []*kgo.Record {
	var records []*kgo.Record
	ctx, cancel := context.WithTimeout(background, time.Minute)
	defer cancel()
	for len(records) < count {
		fetches := client.PollFetches(ctx)
		check(ctx.Err() == nil, "only %d of %d records in a minute", len(records), count)
		must(fetches.Err())
		records = append(records, fetches.Records()...)
	}
	again, stop := context.WithTimeout(background, 100*time.Millisecond)
	defer stop()
	records = append(records, client.PollFetches(again).Records()...)
	same(count, len(records), "records consumed")
	return records
}

func (s *suite) direct(topic string, partitions int32, options ...kgo.Opt) *kgo.Client {
	offsets := map[int32]kgo.Offset{}
	for i := range partitions {
		offsets[i] = kgo.NewOffset().AtStart()
	}
	assignment := kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: offsets})
	return s.client(append(options, assignment)...)
}
