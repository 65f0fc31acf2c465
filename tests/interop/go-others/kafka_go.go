package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/segmentio/kafka-go"
)

const (
	kafkaGoTopic = "kafka-go-everyday"
	kafkaGoGroup = "kafka-go-group"
)

func everydayKafkaGo(bootstrap string) {
	client := &kafka.Client{Addr: kafka.TCP(bootstrap), Timeout: wait}
	check("create topics", func() error { return kafkaGoCreate(client) })
	check("write with every codec and read with a group", func() error { return kafkaGoExchange(bootstrap) })
	check("the group goes on where it was", func() error {
		if err := kafkaGoWrite(bootstrap, "more", 10, 0); err != nil {
			return err
		}
		found, err := kafkaGoRead(bootstrap, 10)
		return errors.Join(err, same("records", numbered("more", 10), found))
	})
	check("offsets, settings, groups and deletions", func() error { return kafkaGoAdminister(client) })
}

func kafkaGoCreate(client *kafka.Client) error {
	answer, err := client.CreateTopics(context.Background(), &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{{
		Topic: kafkaGoTopic, NumPartitions: partitions, ReplicationFactor: 1,
		ConfigEntries: []kafka.ConfigEntry{{ConfigName: "retention.ms", ConfigValue: "86400000"}},
	}}})
	if err != nil {
		return err
	}
	return answer.Errors[kafkaGoTopic]
}

func kafkaGoWrite(bootstrap, word string, count int, codec kafka.Compression) error {
	writer := &kafka.Writer{
		Addr: kafka.TCP(bootstrap), Topic: kafkaGoTopic, Balancer: &kafka.Hash{}, RequiredAcks: kafka.RequireAll,
		Compression: codec, BatchTimeout: 5 * time.Millisecond,
	}
	var messages []kafka.Message
	for number := range count {
		messages = append(messages, kafka.Message{
			Key:     fmt.Appendf(nil, "key-%d", number),
			Value:   fmt.Appendf(nil, "%s-%d", word, number),
			Headers: []kafka.Header{{Key: "number", Value: []byte(strconv.Itoa(number))}},
		})
	}
	return errors.Join(writer.WriteMessages(context.Background(), messages...), writer.Close())
}

func kafkaGoExchange(bootstrap string) error {
	var expected []string
	for _, codec := range []kafka.Compression{0, kafka.Gzip, kafka.Snappy, kafka.Lz4, kafka.Zstd} {
		word := "codec" + strconv.Itoa(int(codec))
		if err := kafkaGoWrite(bootstrap, word, perCodec, codec); err != nil {
			return fmt.Errorf("%s: %w", word, err)
		}
		expected = append(expected, numbered(word, perCodec)...)
	}
	found, err := kafkaGoRead(bootstrap, len(expected))
	return errors.Join(err, same("records", expected, found))
}

func kafkaGoRead(bootstrap string, count int) ([]string, error) {
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers: []string{bootstrap}, GroupID: kafkaGoGroup, Topic: kafkaGoTopic, StartOffset: kafka.FirstOffset,
		MaxWait: 200 * time.Millisecond,
	})
	var found []string
	for {
		patience := wait
		if len(found) >= count {
			patience = grace
		}
		until, cancel := context.WithTimeout(context.Background(), patience)
		message, err := reader.ReadMessage(until)
		cancel()
		if errors.Is(err, context.DeadlineExceeded) {
			return found, reader.Close()
		}
		if err != nil {
			return found, errors.Join(err, reader.Close())
		}
		found = append(found, shown(string(message.Key), string(message.Value), string(message.Headers[0].Value)))
	}
}

func kafkaGoAdminister(client *kafka.Client) error {
	ctx := context.Background()
	requests := map[string][]kafka.OffsetRequest{}
	for partition := range partitions {
		requests[kafkaGoTopic] = append(requests[kafkaGoTopic], kafka.LastOffsetOf(partition))
	}
	offsets, err := client.ListOffsets(ctx, &kafka.ListOffsetsRequest{Topics: requests})
	if err != nil {
		return err
	}
	var sum int64
	for _, partition := range offsets.Topics[kafkaGoTopic] {
		sum += partition.LastOffset
	}
	if sum != 5*perCodec+10 {
		return fmt.Errorf("the ends of the partitions sum to %d", sum)
	}
	configs, err := client.DescribeConfigs(ctx, &kafka.DescribeConfigsRequest{Resources: []kafka.DescribeConfigRequestResource{{
		ResourceType: kafka.ResourceTypeTopic, ResourceName: kafkaGoTopic, ConfigNames: []string{"retention.ms"},
	}}})
	if err != nil {
		return err
	}
	if entries := configs.Resources[0].ConfigEntries; len(entries) != 1 || entries[0].ConfigValue != "86400000" {
		return fmt.Errorf("retention.ms: %+v", entries)
	}
	groups, err := client.DescribeGroups(ctx, &kafka.DescribeGroupsRequest{GroupIDs: []string{kafkaGoGroup}})
	if err != nil {
		return err
	}
	if group := groups.Groups[0]; group.Error != nil || group.GroupState != "Empty" {
		return fmt.Errorf("the group: %+v", group)
	}
	deleted, err := client.DeleteGroups(ctx, &kafka.DeleteGroupsRequest{GroupIDs: []string{kafkaGoGroup}})
	if err != nil || deleted.Errors[kafkaGoGroup] != nil {
		return errors.Join(err, deleted.Errors[kafkaGoGroup])
	}
	topics, err := client.DeleteTopics(ctx, &kafka.DeleteTopicsRequest{Topics: []string{kafkaGoTopic}})
	if err != nil {
		return err
	}
	return topics.Errors[kafkaGoTopic]
}
