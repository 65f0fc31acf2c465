package main

import (
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
)

// errand prepares and finishes a run; `ends` prints the sum of all partitions' end offsets of each topic, which is the
// number of its records if it has no transactions and no deletions.
func errand(what string, a arguments) {
	client := connect(a)
	defer client.Close()
	admin := kadm.NewClient(client)
	topics := strings.Split(a["topics"], ",")
	switch what {
	case "create":
		for _, topic := range topics {
			must(value(admin.CreateTopic(background, int32(a.number("partitions")), 1, nil, topic)).Err)
		}
		// Apache Kafka answers NOT_LEADER_OR_FOLLOWER for a moment; ListOffsets is repeated until it succeeds.
		value(admin.ListEndOffsets(background, topics...))
	case "delete":
		must(value(admin.DeleteTopics(background, topics...)).Error())
	case "ends":
		ends := value(admin.ListEndOffsets(background, topics...))
		must(ends.Error())
		for _, topic := range topics {
			sum := int64(0)
			for _, end := range ends[topic] {
				sum += end.Offset
			}
			fmt.Println(sum)
		}
	}
}
