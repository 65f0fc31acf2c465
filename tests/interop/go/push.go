package main

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// push runs a producer and a consumer side by side for some seconds, long enough that they push metrics.
func push(s *suite, seconds int) {
	const topic = "push-franz-go"
	s.createTopic(topic, 1)
	producer := s.client(kgo.ClientID("interop-franz-go-producer"))
	defer producer.Close()
	consumer := s.client(
		kgo.ClientID("interop-franz-go-consumer"),
		kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	)
	defer consumer.Close()
	end := time.Now().Add(time.Duration(seconds) * time.Second)
	read := 0
	for time.Now().Before(end) {
		for range 20 {
			producer.Produce(background, &kgo.Record{Topic: topic, Value: make([]byte, 100)}, nil)
		}
		must(producer.Flush(background))
		limited, cancel := context.WithTimeout(background, 50*time.Millisecond)
		read += consumer.PollFetches(limited).NumRecords()
		cancel()
	}
	check(read > 0, "nothing was read")
}
