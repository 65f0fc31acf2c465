package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/IBM/sarama"
)

func everydaySarama(bootstrap string) {
	// The version that Sarama takes by itself, which uses old versions of every request, and the newest.
	for name, version := range map[string]sarama.KafkaVersion{"default": sarama.DefaultVersion, "newest": sarama.MaxVersion} {
		client := saramaClient{[]string{bootstrap}, name, version}
		check("create topics, version "+name, client.createTopics)
		check("write with every codec and read with a group, version "+name, client.exchange)
		check("the group goes on where it was, version "+name, client.goOn)
		check("transactions, version "+name, client.transactions)
		check("offsets, settings, groups and deletions, version "+name, client.administer)
	}
}

type saramaClient struct {
	brokers []string
	name    string
	version sarama.KafkaVersion
}

func (c saramaClient) topic() string     { return "sarama-everyday-" + c.name }
func (c saramaClient) committed() string { return "sarama-committed-" + c.name }
func (c saramaClient) group() string     { return "sarama-group-" + c.name }

func (c saramaClient) config() *sarama.Config {
	config := sarama.NewConfig()
	config.Version = c.version
	config.ClientID = "sarama"
	config.Producer.Return.Successes = true
	// Apache Kafka leads a new topic only after a moment.
	config.Producer.Retry.Max = 30
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	return config
}

func (c saramaClient) admin(body func(sarama.ClusterAdmin) error) error {
	admin, err := sarama.NewClusterAdmin(c.brokers, c.config())
	if err != nil {
		return err
	}
	defer admin.Close()
	return body(admin)
}

func (c saramaClient) createTopics() error {
	return c.admin(func(admin sarama.ClusterAdmin) error {
		retention := "86400000"
		detail := &sarama.TopicDetail{NumPartitions: partitions, ReplicationFactor: 1, ConfigEntries: map[string]*string{"retention.ms": &retention}}
		if err := admin.CreateTopic(c.topic(), detail, false); err != nil {
			return err
		}
		return admin.CreateTopic(c.committed(), &sarama.TopicDetail{NumPartitions: 1, ReplicationFactor: 1}, false)
	})
}

func (c saramaClient) messages(topic, word string, count int) []*sarama.ProducerMessage {
	var messages []*sarama.ProducerMessage
	for number := range count {
		messages = append(messages, &sarama.ProducerMessage{
			Topic:   topic,
			Key:     sarama.StringEncoder(fmt.Sprintf("key-%d", number)),
			Value:   sarama.StringEncoder(fmt.Sprintf("%s-%d", word, number)),
			Headers: []sarama.RecordHeader{{Key: []byte("number"), Value: []byte(strconv.Itoa(number))}},
		})
	}
	return messages
}

func (c saramaClient) write(word string, count int, change func(*sarama.Config)) error {
	config := c.config()
	change(config)
	producer, err := sarama.NewSyncProducer(c.brokers, config)
	if err != nil {
		return err
	}
	defer producer.Close()
	return producer.SendMessages(c.messages(c.topic(), word, count))
}

func (c saramaClient) exchange() error {
	codecs := []sarama.CompressionCodec{
		sarama.CompressionNone, sarama.CompressionGZIP, sarama.CompressionSnappy, sarama.CompressionLZ4, sarama.CompressionZSTD,
	}
	var expected []string
	for _, codec := range codecs {
		err := c.write(codec.String(), perCodec, func(config *sarama.Config) {
			config.Producer.Compression = codec
			config.Producer.Idempotent = true
			config.Producer.RequiredAcks = sarama.WaitForAll
			config.Net.MaxOpenRequests = 1
		})
		if err != nil {
			return fmt.Errorf("%s: %w", codec, err)
		}
		expected = append(expected, numbered(codec.String(), perCodec)...)
	}
	found, err := c.read(c.group(), c.topic(), len(expected))
	return errors.Join(err, same("records", expected, found))
}

func (c saramaClient) goOn() error {
	if err := c.write("more", 10, func(*sarama.Config) {}); err != nil {
		return err
	}
	found, err := c.read(c.group(), c.topic(), 10)
	return errors.Join(err, same("records", numbered("more", 10), found))
}

// collector takes the records of a group's member.
type collector struct {
	mutex sync.Mutex
	found []string
}

func (*collector) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (*collector) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (c *collector) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case message, isOpen := <-claim.Messages():
			if !isOpen {
				return nil
			}
			header := ""
			if len(message.Headers) > 0 {
				header = string(message.Headers[0].Value)
			}
			c.mutex.Lock()
			c.found = append(c.found, shown(string(message.Key), string(message.Value), header))
			c.mutex.Unlock()
			session.MarkMessage(message, "")
		case <-session.Context().Done():
			return nil
		}
	}
}

func (c *collector) records() []string {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return append([]string(nil), c.found...)
}

func (c saramaClient) read(name, topic string, count int) ([]string, error) {
	config := c.config()
	config.Consumer.IsolationLevel = sarama.ReadCommitted
	group, err := sarama.NewConsumerGroup(c.brokers, name, config)
	if err != nil {
		return nil, err
	}
	collector := &collector{}
	until, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		for until.Err() == nil {
			if err := group.Consume(until, []string{topic}, collector); err != nil {
				ended <- err
				return
			}
		}
		ended <- nil
	}()
	for started := time.Now(); len(collector.records()) < count && time.Since(started) < wait; {
		time.Sleep(50 * time.Millisecond)
	}
	time.Sleep(grace)
	cancel()
	return collector.records(), errors.Join(<-ended, group.Close())
}

func (c saramaClient) transactions() error {
	config := c.config()
	config.Producer.Idempotent = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Net.MaxOpenRequests = 1
	config.Producer.Transaction.ID = "sarama-transactional-" + c.name
	producer, err := sarama.NewSyncProducer(c.brokers, config)
	if err != nil {
		return err
	}
	defer producer.Close()
	for _, word := range []string{"aborted", "committed"} {
		if err := producer.BeginTxn(); err != nil {
			return err
		}
		if err := producer.SendMessages(c.messages(c.committed(), word, 5)); err != nil {
			return err
		}
		if word == "aborted" {
			if err := producer.AbortTxn(); err != nil {
				return err
			}
			continue
		}
		offsets := map[string][]*sarama.PartitionOffsetMetadata{c.topic(): {{Partition: 0, Offset: 7}}}
		if err := producer.AddOffsetsToTxn(offsets, "sarama-transactional-group-"+c.name); err != nil {
			return err
		}
		if err := producer.CommitTxn(); err != nil {
			return err
		}
	}
	found, err := c.read("sarama-committed-group-"+c.name, c.committed(), 5)
	if err := errors.Join(err, same("committed records", numbered("committed", 5), found)); err != nil {
		return err
	}
	return c.admin(func(admin sarama.ClusterAdmin) error {
		offsets, err := admin.ListConsumerGroupOffsets("sarama-transactional-group-"+c.name, map[string][]int32{c.topic(): {0}})
		if err != nil {
			return err
		}
		return same("the offset of the transaction", []string{"7"}, []string{fmt.Sprint(offsets.GetBlock(c.topic(), 0).Offset)})
	})
}

func (c saramaClient) administer() error {
	client, err := sarama.NewClient(c.brokers, c.config())
	if err != nil {
		return err
	}
	defer client.Close()
	var sum int64
	for partition := range int32(partitions) {
		end, err := client.GetOffset(c.topic(), partition, sarama.OffsetNewest)
		if err != nil {
			return err
		}
		sum += end
	}
	if sum != 5*perCodec+10 {
		return fmt.Errorf("the ends of the partitions sum to %d", sum)
	}
	return c.admin(func(admin sarama.ClusterAdmin) error {
		entries, err := admin.DescribeConfig(sarama.ConfigResource{Type: sarama.TopicResource, Name: c.topic(), ConfigNames: []string{"retention.ms"}})
		if err != nil || len(entries) != 1 || entries[0].Value != "86400000" {
			return fmt.Errorf("retention.ms: %v, %w", entries, err)
		}
		hour := "3600000"
		changed := map[string]sarama.IncrementalAlterConfigsEntry{"retention.ms": {Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &hour}}
		if c.version.IsAtLeast(sarama.V2_3_0_0) {
			if err := admin.IncrementalAlterConfig(sarama.TopicResource, c.topic(), changed, false); err != nil {
				return fmt.Errorf("incremental alter: %w", err)
			}
		}
		if err := admin.AlterConfig(sarama.TopicResource, c.topic(), map[string]*string{"retention.ms": &hour}, false); err != nil {
			return fmt.Errorf("alter: %w", err)
		}
		if err := admin.CreatePartitions(c.topic(), partitions+1, nil, false); err != nil {
			return fmt.Errorf("create partitions: %w", err)
		}
		groups, err := admin.ListConsumerGroups()
		if err != nil || groups[c.group()] != "consumer" {
			return fmt.Errorf("groups: %v, %w", groups, err)
		}
		described, err := admin.DescribeConsumerGroups([]string{c.group()})
		if err != nil || described[0].State != "Empty" {
			return fmt.Errorf("the group: %+v, %w", described, err)
		}
		if err := admin.DeleteRecords(c.topic(), map[int32]int64{0: 5}); err != nil {
			return fmt.Errorf("delete records: %w", err)
		}
		if err := admin.DeleteConsumerGroup(c.group()); err != nil {
			return fmt.Errorf("delete the group: %w", err)
		}
		return admin.DeleteTopic(c.topic())
	})
}
