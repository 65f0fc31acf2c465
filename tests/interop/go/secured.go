package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
)

// connection is a line of the file of cases: what to connect to and how, and what to expect. A minus is nothing.
type connection struct {
	name, address, protocol, trust, key, mechanism, user, password, topic, expected string
}

// What franz-go says of each mistake.
var mistakes = map[string][]string{
	"untrusted":   {"certificate signed by unknown authority"},
	"misnamed":    {"certificate is valid for kafka.example"},
	"expired":     {"certificate has expired"},
	"certificate": {"remote error: tls: certificate required", "remote error: tls: unknown certificate authority"},
	"password":    {"SASL_AUTHENTICATION_FAILED"},
	"token":       {"SASL_AUTHENTICATION_FAILED", "unexpected data in oauth response"},
}

// secured tries connections of every security protocol: a record through each that must work, and how the others fail.
func secured(s *suite, file string) {
	lines := value(os.Open(file))
	defer lines.Close()
	scanner := bufio.NewScanner(lines)
	for scanner.Scan() {
		parts := strings.Split(scanner.Text(), "\t")
		c := connection{parts[0], parts[1], parts[2], parts[3], parts[4], parts[5], parts[6], parts[7], parts[8], parts[9]}
		switch c.expected {
		case "works":
			s.run(c.name, func() { c.exchange() })
		case "renewed":
			s.run(c.name, func() { c.renew() })
		default:
			s.run(c.name, func() { c.refused() })
		}
	}
	must(scanner.Err())
}

func (c connection) client(options ...kgo.Opt) *kgo.Client {
	options = append(options, kgo.SeedBrokers(c.address))
	if strings.HasSuffix(c.protocol, "SSL") {
		options = append(options, kgo.DialTLSConfig(c.tls()))
	}
	switch c.mechanism {
	case "-":
	case "OAUTHBEARER":
		options = append(options, kgo.SASL(oauth.Oauth(func(context.Context) (oauth.Auth, error) {
			return oauth.Auth{Token: token(c.password)}, nil
		})))
	default:
		var mechanism sasl.Mechanism = mechanismOf(c.mechanism, c.user, c.password)
		options = append(options, kgo.SASL(mechanism))
	}
	return value(kgo.NewClient(options...))
}

// trusting returns a configuration that trusts the certificates of a file.
func trusting(file string) *tls.Config {
	config := &tls.Config{RootCAs: x509.NewCertPool()}
	check(config.RootCAs.AppendCertsFromPEM(value(os.ReadFile(file))), "no certificate in %s", file)
	return config
}

func (c connection) tls() *tls.Config {
	config := trusting(c.trust)
	if c.key != "-" {
		config.Certificates = []tls.Certificate{value(tls.LoadX509KeyPair(c.key, c.key))}
	}
	return config
}

// token asks a server for a token; it answers as RFC 6749 says, or with the token alone.
func token(url string) string {
	answer := value(http.Get(url))
	defer answer.Body.Close()
	text := value(io.ReadAll(answer.Body))
	var found struct {
		AccessToken string `json:"access_token"`
	}
	if json.Unmarshal(text, &found) == nil && found.AccessToken != "" {
		return found.AccessToken
	}
	return strings.TrimSpace(string(text))
}

func (c connection) exchange() {
	producer := c.client(kgo.RecordPartitioner(kgo.ManualPartitioner()))
	defer producer.Close()
	text := fmt.Sprintf("value-%d", time.Now().UnixNano())
	sent := value(producer.ProduceSync(background, &kgo.Record{Topic: c.topic, Value: []byte(text)}).First())
	offsets := map[string]map[int32]kgo.Offset{c.topic: {0: kgo.NewOffset().At(sent.Offset)}}
	consumer := c.client(kgo.ConsumePartitions(offsets))
	defer consumer.Close()
	same(text, string(take(consumer, 1)[0].Value), "value")
}

// renew produces over several sessions (KIP-368).
func (c connection) renew() {
	producer := c.client()
	defer producer.Close()
	for until := time.Now().Add(10 * time.Second); time.Now().Before(until); time.Sleep(200 * time.Millisecond) {
		must(producer.ProduceSync(background, &kgo.Record{Topic: c.topic, Value: []byte("value")}).FirstErr())
	}
}

func (c connection) refused() {
	limit := 20 * time.Second
	if c.expected == "unserved" {
		limit = 3 * time.Second
	}
	ctx, cancel := context.WithTimeout(background, limit)
	defer cancel()
	stranger := c.client(kgo.RetryTimeout(limit), kgo.DialTimeout(limit))
	defer stranger.Close()
	_, err := kadm.NewClient(stranger).ListTopics(ctx)
	check(err != nil, "was served")
	if c.expected == "unserved" {
		return
	}
	for _, text := range mistakes[c.expected] {
		if strings.Contains(err.Error(), text) {
			return
		}
	}
	panic(err)
}
