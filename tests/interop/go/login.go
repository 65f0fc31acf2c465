package main

import (
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// sessions is longer than two sessions of the broker's (KIP-368).
const sessions = 5 * time.Second

// login tries SASL: records through authenticated connections, sessions that end meanwhile, and wrong credentials.
// The arguments are the address of the listener with SASL, mechanism, user and password.
func login(s *suite, arguments []string) {
	address, mechanism, user, password := arguments[0], arguments[1], arguments[2], arguments[3]
	client := func(user, password string, options ...kgo.Opt) *kgo.Client {
		options = append(options, kgo.SeedBrokers(address), kgo.SASL(mechanismOf(mechanism, user, password)))
		return s.client(options...)
	}
	s.run("records", func() {
		topic := "login-franz-go-" + mechanism
		s.createTopic(topic, 1)
		producer := client(user, password)
		defer producer.Close()
		for _, text := range []string{"first", "second"} {
			record := &kgo.Record{Topic: topic, Value: []byte(text)}
			must(producer.ProduceSync(background, record).FirstErr())
			time.Sleep(sessions)
		}
		offsets := map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().AtStart()}}
		consumer := client(user, password, kgo.ConsumePartitions(offsets))
		defer consumer.Close()
		records := take(consumer, 2)
		same("second", string(records[1].Value), "value")
	})
	refused := func(user, password string) func() {
		return func() {
			stranger := client(user, password, kgo.RetryTimeout(5*time.Second))
			defer stranger.Close()
			_, err := kadm.NewClient(stranger).ListTopics(background)
			check(err != nil, "a stranger was served")
			check(strings.Contains(err.Error(), "SASL_AUTHENTICATION_FAILED"), "%v", err)
		}
	}
	s.run("wrong password", refused(user, "wrong"))
	s.run("unknown user", refused("mallory", password))
}

func mechanismOf(name, user, password string) sasl.Mechanism {
	switch name {
	case "PLAIN":
		return plain.Auth{User: user, Pass: password}.AsMechanism()
	case "SCRAM-SHA-256":
		return scram.Auth{User: user, Pass: password}.AsSha256Mechanism()
	default:
		return scram.Auth{User: user, Pass: password}.AsSha512Mechanism()
	}
}
