package main

import (
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func adminCases(s *suite) {
	s.run("describe cluster", func() { describeCluster(s) })
	s.run("create and delete topics", func() { createAndDelete(s) })
	s.run("create partitions", func() { createPartitions(s) })
	s.run("delete records", func() { deleteRecords(s) })
	s.run("topic configs", func() { topicConfigs(s) })
	s.run("broker configs", func() { brokerConfigs(s) })
	s.run("describe log dirs", func() { describeLogDirs(s) })
	s.run("describe producers", func() { describeProducers(s) })
}

func describeCluster(s *suite) {
	metadata := value(s.admin.BrokerMetadata(background))
	same(1, len(metadata.Brokers), "brokers")
	same(int32(1), metadata.Brokers[0].NodeID, "node id")
	same(int32(1), metadata.Controller, "controller")
	check(strings.HasPrefix(s.bootstrap, metadata.Brokers[0].Host+":"), "host is %s", metadata.Brokers[0].Host)
	versions := value(s.admin.ApiVersions(background))
	versions.Each(func(broker kadm.BrokerApiVersions) {
		must(broker.Err)
		for _, key := range []kmsg.Key{kmsg.Produce, kmsg.Fetch, kmsg.OffsetForLeaderEpoch, kmsg.DescribeTopicPartitions} {
			_, _, supported := broker.KeyVersions(key.Int16())
			check(supported, "%s is not supported", key.Name())
		}
	})
}

func createAndDelete(s *suite) {
	_, err := s.admin.ValidateCreateTopics(background, 3, 1, nil, "go-validated")
	must(err)
	check(!value(s.admin.ListTopics(background)).Has("go-validated"), "validate-only created a topic")

	retention := "123456"
	created, err := s.admin.CreateTopic(background, 3, 1, map[string]*string{"retention.ms": &retention}, "go-created")
	must(err)
	same(int32(3), created.NumPartitions, "partitions in the answer")
	same(retention, *created.Configs["retention.ms"].Value, "config in the answer")
	topic := value(s.admin.ListTopics(background, "go-created"))["go-created"]
	same(created.ID, topic.ID, "topic id")
	same(3, len(topic.Partitions), "partitions")
	for _, partition := range topic.Partitions {
		same(int32(1), partition.Leader, "leader")
		same([]int32{1}, partition.Replicas, "replicas")
		same([]int32{1}, partition.ISR, "in-sync replicas")
	}

	for _, refused := range []struct {
		name       string
		partitions int32
		replicas   int16
		config     string
		expected   error
	}{
		{"go-created", 1, 1, "", kerr.TopicAlreadyExists},
		{"go-three", 1, 3, "", kerr.InvalidReplicationFactor},
		{"go-zero", 0, 1, "", kerr.InvalidPartitions},
		{"go-config", 1, 1, "no.such.config", kerr.InvalidConfig},
		{strings.Repeat("x", 250), 1, 1, "", kerr.InvalidTopicException},
	} {
		configs := map[string]*string{}
		if refused.config != "" {
			configs[refused.config] = &retention
		}
		_, err := s.admin.CreateTopic(background, refused.partitions, refused.replicas, configs, refused.name)
		is(refused.expected, err)
	}

	must(firstError(s.admin.DeleteTopics(background, "go-created")))
	eventually("the topic is gone", func() bool { return !value(s.admin.ListTopics(background)).Has("go-created") })
	is(kerr.UnknownTopicOrPartition, firstError(s.admin.DeleteTopics(background, "go-created")))
}

func createPartitions(s *suite) {
	s.createTopic("go-grown", 1)
	s.fill("go-grown", 0, 1, 5)
	responses := value(s.admin.UpdatePartitions(background, 4, "go-grown"))
	must(responses.Error())
	eventually("four partitions are seen", func() bool {
		return len(value(s.admin.ListTopics(background, "go-grown"))["go-grown"].Partitions) == 4
	})
	s.fill("go-grown", 3, 4, 5)
	ends := value(s.admin.ListEndOffsets(background, "go-grown"))
	for partition, expected := range map[int32]int64{0: 5, 1: 0, 3: 5} {
		end, _ := ends.Lookup("go-grown", partition)
		same(expected, end.Offset, "end")
	}
	is(kerr.InvalidPartitions, value(s.admin.UpdatePartitions(background, 2, "go-grown")).Error())
}

func deleteRecords(s *suite) {
	const topic = "go-deleted-records"
	s.createTopic(topic, 1)
	s.fill(topic, 0, 1, 100)
	remove := func(before int64) kadm.DeleteRecordsResponses {
		var offsets kadm.Offsets
		offsets.AddOffset(topic, 0, before, -1)
		return value(s.admin.DeleteRecords(background, offsets))
	}
	response := remove(40)
	must(response.Error())
	deleted, _ := response.Lookup(topic, 0)
	same(int64(40), deleted.LowWatermark, "low watermark")
	same(int64(40), at(value(s.admin.ListStartOffsets(background, topic)), topic).Offset, "start")
	consumer := s.direct(topic, 1)
	defer consumer.Close()
	same(int64(40), take(consumer, 60)[0].Offset, "first record")
	is(kerr.OffsetOutOfRange, remove(1000).Error())
	must(remove(-1).Error())
	same(int64(100), at(value(s.admin.ListStartOffsets(background, topic)), topic).Offset, "start at the end")
}

func config(configs kadm.ResourceConfigs, err error) map[string]*kadm.Config {
	must(err)
	same(1, len(configs), "resources")
	must(configs[0].Err)
	entries := map[string]*kadm.Config{}
	for _, entry := range configs[0].Configs {
		entries[entry.Key] = &entry
	}
	return entries
}

func altered(responses kadm.AlterConfigsResponses, err error) {
	must(err)
	for _, response := range responses {
		must(response.Err)
	}
}

func topicConfigs(s *suite) {
	const topic = "go-configs"
	s.createTopic(topic, 1, "segment.bytes", "1048576")
	read := func() map[string]*kadm.Config { return config(s.admin.DescribeTopicConfigs(background, topic)) }
	set := func(op kadm.IncrementalOp, name, text string) {
		change := kadm.AlterConfig{Op: op, Name: name, Value: kadm.StringPtr(text)}
		if op == kadm.DeleteConfig {
			change.Value = nil
		}
		altered(s.admin.AlterTopicConfigs(background, []kadm.AlterConfig{change}, topic))
	}
	same("1048576", read()["segment.bytes"].MaybeValue(), "segment.bytes")
	same(kmsg.ConfigSourceDynamicTopicConfig, read()["segment.bytes"].Source, "source")
	same("604800000", read()["retention.ms"].MaybeValue(), "retention.ms")
	set(kadm.SetConfig, "retention.ms", "3600000")
	eventually("retention.ms is set", func() bool { return read()["retention.ms"].MaybeValue() == "3600000" })
	set(kadm.AppendConfig, "cleanup.policy", "compact")
	eventually("cleanup.policy has both", func() bool {
		return read()["cleanup.policy"].MaybeValue() == "delete,compact"
	})
	set(kadm.SubtractConfig, "cleanup.policy", "delete")
	set(kadm.DeleteConfig, "retention.ms", "")
	eventually("retention.ms is back", func() bool { return read()["retention.ms"].MaybeValue() == "604800000" })

	// The old AlterConfigs replaces all settings.
	altered(s.admin.AlterTopicConfigsState(background,
		[]kadm.AlterConfig{{Name: "retention.bytes", Value: kadm.StringPtr("5000000")}}, topic))
	eventually("the whole state is replaced", func() bool {
		now := read()
		return now["retention.bytes"].MaybeValue() == "5000000" && now["segment.bytes"].MaybeValue() == "1073741824" &&
			now["cleanup.policy"].MaybeValue() == "delete"
	})
	responses := value(s.admin.AlterTopicConfigs(background,
		[]kadm.AlterConfig{{Name: "retention.ms", Value: kadm.StringPtr("soon")}}, topic))
	is(kerr.InvalidConfig, responses[0].Err)
}

func brokerConfigs(s *suite) {
	read := func() map[string]*kadm.Config { return config(s.admin.DescribeBrokerConfigs(background, 1)) }
	same("1", read()["node.id"].MaybeValue(), "node.id")
	altered(s.admin.AlterBrokerConfigs(background,
		[]kadm.AlterConfig{{Name: "log.retention.ms", Value: kadm.StringPtr("7200000")}}, 1))
	eventually("log.retention.ms is set", func() bool { return read()["log.retention.ms"].MaybeValue() == "7200000" })
	altered(s.admin.AlterBrokerConfigs(background,
		[]kadm.AlterConfig{{Op: kadm.DeleteConfig, Name: "log.retention.ms"}}, 1))
	eventually("log.retention.ms is back", func() bool { return read()["log.retention.ms"].MaybeValue() != "7200000" })
}

func describeLogDirs(s *suite) {
	s.createTopic("go-log-dirs", 2)
	s.fill("go-log-dirs", 0, 2, 100)
	directories := value(s.admin.DescribeAllLogDirs(background, nil))
	must(directories[1].Error())
	check(directories[1].Size() > 0, "nothing is stored")
	partition, found := directories[1].LookupPartition("go-log-dirs", 0)
	check(found, "partition 0 is in no directory")
	check(partition.Size > 500, "partition 0 holds %d bytes", partition.Size)
	same(int64(0), partition.OffsetLag, "offset lag")
}

func describeProducers(s *suite) {
	s.createTopic("go-producers", 1)
	client := s.client()
	defer client.Close()
	for range 7 {
		must(client.ProduceSync(background, &kgo.Record{Topic: "go-producers", Value: []byte("v")}).FirstErr())
	}
	topics := kadm.TopicsSet{}
	topics.Add("go-producers", 0)
	described := value(s.admin.DescribeProducers(background, topics))
	partition := described["go-producers"].Partitions[0]
	must(partition.Err)
	same(1, len(partition.ActiveProducers), "active producers")
	for _, producer := range partition.ActiveProducers {
		same(int32(6), producer.LastSequence, "last sequence")
		same(int64(-1), producer.CurrentTxnStartOffset, "start of a transaction")
	}
}
