package main

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// firstRecord connects and produces until one acks=all record is acknowledged, then prints the time (Unix ns).
// It implements the protocol itself: a client's backoff would dominate the measured time.
func firstRecord(bootstrap, topic string) {
	request := firstProduce(topic)
	for {
		connection, err := net.Dial("tcp", bootstrap)
		if err != nil {
			time.Sleep(500 * time.Microsecond)
			continue
		}
		for {
			at, err := exchange(connection, request)
			if err == nil {
				fmt.Println(at.UnixNano())
				return
			}
			if _, answered := err.(*kerr.Error); !answered {
				break
			}
			time.Sleep(time.Millisecond)
		}
		connection.Close()
	}
}

func exchange(connection net.Conn, request *kmsg.ProduceRequest) (time.Time, error) {
	must(connection.SetDeadline(time.Now().Add(20 * time.Second)))
	frame := kmsg.NewRequestFormatter().AppendRequest(nil, request, 1)
	if _, err := connection.Write(frame); err != nil {
		return time.Time{}, err
	}
	var length [4]byte
	if _, err := io.ReadFull(connection, length[:]); err != nil {
		return time.Time{}, err
	}
	body := make([]byte, binary.BigEndian.Uint32(length[:]))
	if _, err := io.ReadFull(connection, body); err != nil {
		return time.Time{}, err
	}
	at := time.Now()
	response := kmsg.NewPtrProduceResponse()
	response.Version = request.Version
	// Correlation id, then the empty tags of a flexible header.
	if err := response.ReadFrom(body[5:]); err != nil {
		return time.Time{}, err
	}
	return at, kerr.ErrorForCode(response.Topics[0].Partitions[0].ErrorCode)
}

func firstProduce(topic string) *kmsg.ProduceRequest {
	record := kmsg.Record{Value: []byte("the first")}
	record.Length = int32(len(record.AppendTo(nil)) - 1)
	now := time.Now().UnixMilli()
	batch := kmsg.RecordBatch{
		PartitionLeaderEpoch: -1, Magic: 2, FirstTimestamp: now, MaxTimestamp: now, ProducerID: -1, ProducerEpoch: -1,
		FirstSequence: -1, NumRecords: 1, Records: record.AppendTo(nil),
	}
	// The length counts the bytes after itself, the checksum those from the attributes (byte 21) on.
	batch.Length = int32(len(batch.AppendTo(nil)) - 12)
	batch.CRC = int32(crc32.Checksum(batch.AppendTo(nil)[21:], crc32.MakeTable(crc32.Castagnoli)))
	partition := kmsg.NewProduceRequestTopicPartition()
	partition.Records = batch.AppendTo(nil)
	entry := kmsg.NewProduceRequestTopic()
	entry.Topic, entry.Partitions = topic, []kmsg.ProduceRequestTopicPartition{partition}
	request := kmsg.NewPtrProduceRequest()
	request.Version, request.Acks, request.TimeoutMillis = 9, -1, 15_000
	request.Topics = []kmsg.ProduceRequestTopic{entry}
	return request
}
