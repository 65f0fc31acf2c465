package main

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strconv"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// nullSink is a broker that discards all records: the rate reached against it is the generator's own limit.
func nullSink(partitions int) {
	listener := value(net.Listen("tcp", "127.0.0.1:0"))
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	fmt.Println("127.0.0.1:" + port)
	for {
		connection := value(listener.Accept())
		go func() {
			defer connection.Close()
			for {
				var length [4]byte
				if _, err := io.ReadFull(connection, length[:]); err != nil {
					return
				}
				frame := make([]byte, binary.BigEndian.Uint32(length[:]))
				if _, err := io.ReadFull(connection, frame); err != nil {
					return
				}
				if _, err := connection.Write(answer(frame, port, partitions)); err != nil {
					return
				}
			}
		}()
	}
}

func answer(frame []byte, port string, partitions int) []byte {
	key := int16(binary.BigEndian.Uint16(frame))
	request := kmsg.RequestForKey(key)
	request.SetVersion(int16(binary.BigEndian.Uint16(frame[2:])))
	body := frame[8:]
	clientID := int16(binary.BigEndian.Uint16(body))
	body = body[2+max(int(clientID), 0):]
	if request.IsFlexible() {
		body = body[1:]
	}
	must(request.ReadFrom(body))
	out := append(make([]byte, 4, 256), frame[4:8]...)
	response := request.ResponseKind()
	if response.IsFlexible() && key != int16(kmsg.ApiVersions) {
		out = append(out, 0)
	}
	switch response := response.(type) {
	case *kmsg.ApiVersionsResponse:
		for _, supported := range [][2]int16{{0, 9}, {3, 12}, {18, 3}, {22, 4}} {
			entry := kmsg.NewApiVersionsResponseApiKey()
			entry.ApiKey, entry.MaxVersion = supported[0], supported[1]
			response.ApiKeys = append(response.ApiKeys, entry)
		}
	case *kmsg.MetadataResponse:
		broker := kmsg.NewMetadataResponseBroker()
		broker.NodeID, broker.Host, broker.Port = 1, "127.0.0.1", int32(value(strconv.Atoi(port)))
		response.Brokers, response.ControllerID = []kmsg.MetadataResponseBroker{broker}, 1
		for _, asked := range request.(*kmsg.MetadataRequest).Topics {
			topic := kmsg.NewMetadataResponseTopic()
			topic.Topic, topic.TopicID = asked.Topic, [16]byte{15: 9}
			for i := range int32(partitions) {
				partition := kmsg.NewMetadataResponseTopicPartition()
				partition.Partition, partition.Leader, partition.LeaderEpoch = i, 1, 0
				partition.Replicas, partition.ISR = []int32{1}, []int32{1}
				topic.Partitions = append(topic.Partitions, partition)
			}
			response.Topics = append(response.Topics, topic)
		}
	case *kmsg.InitProducerIDResponse:
		response.ProducerID = 7
	case *kmsg.ProduceResponse:
		for _, asked := range request.(*kmsg.ProduceRequest).Topics {
			topic := kmsg.NewProduceResponseTopic()
			topic.Topic = asked.Topic
			for _, batch := range asked.Partitions {
				partition := kmsg.NewProduceResponseTopicPartition()
				partition.Partition = batch.Partition
				topic.Partitions = append(topic.Partitions, partition)
			}
			response.Topics = append(response.Topics, topic)
		}
	}
	out = response.AppendTo(out)
	binary.BigEndian.PutUint32(out, uint32(len(out)-4))
	return out
}
