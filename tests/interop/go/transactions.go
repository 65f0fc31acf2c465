package main

import (
	"context"
	"sort"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// transactions runs the cases of franz-go's transactional client.
func transactions(s *suite) {
	s.run("commits are read, aborts are not", func() { commitAndAbort(s) })
	s.run("consume, transform, produce: exactly once", func() { exactlyOnce(s) })
}

// committedValues reads a whole topic as committed, up to a last record of this value.
func committedValues(s *suite, topic, last string) []string {
	client := s.client(
		kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
	)
	defer client.Close()
	limit, cancel := context.WithTimeout(background, time.Minute)
	defer cancel()
	var values []string
	for {
		fetches := client.PollFetches(limit)
		must(limit.Err())
		done := false
		fetches.EachRecord(func(record *kgo.Record) {
			if string(record.Value) == last {
				done = true
				return
			}
			values = append(values, string(record.Value))
		})
		if done {
			return values
		}
	}
}

func commitAndAbort(s *suite) {
	s.createTopic("go-ends", 1)
	client := s.client(kgo.TransactionalID("go-ends"), kgo.DefaultProduceTopic("go-ends"))
	defer client.Close()
	var wanted []string
	for number := range 7 {
		must(client.BeginTransaction())
		text := "v" + strconv.Itoa(number)
		if number == 6 {
			text = "last"
		}
		must(client.ProduceSync(background, kgo.StringRecord(text)).FirstErr())
		commit := number%3 != 1
		must(client.EndTransaction(background, kgo.TransactionEndTry(commit)))
		if commit && number < 6 {
			wanted = append(wanted, text)
		}
	}
	same(wanted, committedValues(s, "go-ends", "last"), "records")
}

// exactlyOnce aborts every third attempt; the session then goes back to what was committed.
func exactlyOnce(s *suite) {
	s.createTopic("go-input", 1)
	s.createTopic("go-output", 1)
	s.fill("go-input", 0, 1, 40)
	session := value(kgo.NewGroupTransactSession(
		kgo.SeedBrokers(s.bootstrap),
		kgo.TransactionalID("go-loop"),
		kgo.ConsumerGroup("go-loop"),
		kgo.ConsumeTopics("go-input"),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.DefaultProduceTopic("go-output"),
	))
	defer session.Close()
	limit, cancel := context.WithTimeout(background, time.Minute)
	defer cancel()
	for attempt, done := 1, 0; done < 40; attempt++ {
		fetches := session.PollRecords(limit, 7)
		must(limit.Err())
		must(session.Begin())
		count := 0
		fetches.EachRecord(func(record *kgo.Record) {
			count++
			session.Produce(limit, kgo.StringRecord("out-"+strconv.FormatInt(record.Offset, 10)), nil)
		})
		committed := value(session.End(limit, kgo.TransactionEndTry(attempt%3 != 0)))
		if committed {
			done += count
		}
	}
	must(session.Begin())
	must(session.Client().ProduceSync(limit, kgo.StringRecord("last")).FirstErr())
	check(value(session.End(limit, kgo.TryCommit)), "the last record was not committed")
	var wanted []string
	for number := range 40 {
		wanted = append(wanted, "out-"+strconv.Itoa(number))
	}
	found := committedValues(s, "go-output", "last")
	sort.Strings(wanted)
	sort.Strings(found)
	same(wanted, found, "records")
}
