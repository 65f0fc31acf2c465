package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/IBM/sarama"
	"github.com/xdg-go/scram"
)

// connection is a line of the file of cases: what to connect to and how, and what to expect. A minus is nothing.
type connection struct {
	name, address, protocol, trust, key, mechanism, user, password, topic, expected string
}

// What Sarama says of each mistake.
var mistakes = map[string][]string{
	"untrusted":   {"certificate signed by unknown authority"},
	"misnamed":    {"certificate is valid for kafka.example"},
	"expired":     {"certificate has expired"},
	"certificate": {"remote error: tls: certificate required", "remote error: tls: unknown certificate authority"},
	"password":    {"SASL Authentication failed"},
	"token":       {"SASL Authentication failed"},
}

// securedSarama tries connections of every security protocol: a record through each that must work, and how the others fail.
func securedSarama(file string) error {
	lines, err := os.Open(file)
	if err != nil {
		return err
	}
	defer lines.Close()
	scanner := bufio.NewScanner(lines)
	for scanner.Scan() {
		parts := strings.Split(scanner.Text(), "\t")
		c := connection{parts[0], parts[1], parts[2], parts[3], parts[4], parts[5], parts[6], parts[7], parts[8], parts[9]}
		body := c.refused
		switch c.expected {
		case "works":
			body = c.exchange
		case "renewed":
			body = c.renew
		}
		check(c.name, body)
	}
	return scanner.Err()
}

func (c connection) config() (*sarama.Config, error) {
	config := sarama.NewConfig()
	config.Version = sarama.MaxVersion
	config.ClientID = "sarama"
	config.Producer.Return.Successes = true
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Net.DialTimeout = 10 * time.Second
	config.Net.ReadTimeout = 10 * time.Second
	if strings.HasSuffix(c.protocol, "SSL") {
		secured, err := c.tls()
		if err != nil {
			return nil, err
		}
		config.Net.TLS.Enable, config.Net.TLS.Config = true, secured
	}
	if c.mechanism != "-" {
		config.Net.SASL.Enable = true
		config.Net.SASL.Mechanism = sarama.SASLMechanism(c.mechanism)
		config.Net.SASL.User, config.Net.SASL.Password = c.user, c.password
		config.Net.SASL.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &scramClient{mechanism: c.mechanism} }
		config.Net.SASL.TokenProvider = tokens(c.password)
	}
	return config, nil
}

func (c connection) tls() (*tls.Config, error) {
	authorities, err := os.ReadFile(c.trust)
	if err != nil {
		return nil, err
	}
	config := &tls.Config{RootCAs: x509.NewCertPool()}
	if !config.RootCAs.AppendCertsFromPEM(authorities) {
		return nil, fmt.Errorf("no certificate in %s", c.trust)
	}
	if c.key != "-" {
		own, err := tls.LoadX509KeyPair(c.key, c.key)
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{own}
	}
	return config, nil
}

// scramClient is what Sarama leaves to applications.
type scramClient struct {
	mechanism    string
	conversation *scram.ClientConversation
}

func (s *scramClient) Begin(user, password, authorization string) error {
	hash := scram.SHA256
	if s.mechanism == sarama.SASLTypeSCRAMSHA512 {
		hash = scram.SHA512
	}
	client, err := hash.NewClient(user, password, authorization)
	if err == nil {
		s.conversation = client.NewConversation()
	}
	return err
}

func (s *scramClient) Step(challenge string) (string, error) { return s.conversation.Step(challenge) }

func (s *scramClient) Done() bool { return s.conversation.Done() }

// tokens is the URL of a server that gives tokens, as documents of RFC 6749.
type tokens string

func (url tokens) Token() (*sarama.AccessToken, error) {
	answer, err := http.Get(string(url))
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	var document struct {
		AccessToken string `json:"access_token"`
	}
	err = json.NewDecoder(answer.Body).Decode(&document)
	return &sarama.AccessToken{Token: document.AccessToken}, err
}

// produce returns the offset of the record.
func (c connection) produce(producer sarama.SyncProducer, text string) (int64, error) {
	_, offset, err := producer.SendMessage(&sarama.ProducerMessage{Topic: c.topic, Value: sarama.StringEncoder(text)})
	return offset, err
}

func (c connection) producer() (sarama.SyncProducer, error) {
	config, err := c.config()
	if err != nil {
		return nil, err
	}
	return sarama.NewSyncProducer([]string{c.address}, config)
}

func (c connection) exchange() error {
	producer, err := c.producer()
	if err != nil {
		return err
	}
	defer producer.Close()
	text := fmt.Sprintf("value-%d", time.Now().UnixNano())
	offset, err := c.produce(producer, text)
	if err != nil {
		return err
	}
	config, err := c.config()
	if err != nil {
		return err
	}
	consumer, err := sarama.NewConsumer([]string{c.address}, config)
	if err != nil {
		return err
	}
	defer consumer.Close()
	partition, err := consumer.ConsumePartition(c.topic, 0, offset)
	if err != nil {
		return err
	}
	defer partition.Close()
	limit, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	select {
	case message := <-partition.Messages():
		return same("the record", []string{text}, []string{string(message.Value)})
	case <-limit.Done():
		return errors.New("the record did not come back")
	}
}

// renew produces over several sessions (KIP-368).
func (c connection) renew() error {
	producer, err := c.producer()
	if err != nil {
		return err
	}
	defer producer.Close()
	for until := time.Now().Add(10 * time.Second); time.Now().Before(until); time.Sleep(200 * time.Millisecond) {
		if _, err := c.produce(producer, "value"); err != nil {
			return err
		}
	}
	return nil
}

func (c connection) refused() error {
	config, err := c.config()
	if err != nil {
		return err
	}
	client, err := sarama.NewClient([]string{c.address}, config)
	if err == nil {
		client.Close()
		return errors.New("was served")
	}
	// The broker closes without a byte.
	if c.expected == "unserved" {
		return nil
	}
	for _, text := range mistakes[c.expected] {
		if strings.Contains(err.Error(), text) {
			return nil
		}
	}
	return err
}
