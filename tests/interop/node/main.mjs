// KafkaJS against a broker: what an application does every day.
//
// Prints `CASE<tab>name<tab>ok|fail<tab>detail` for each case.

import assert from "node:assert";
import kafkajs from "kafkajs";

const { CompressionTypes, ConfigResourceTypes, Kafka, logLevel } = kafkajs;

const PER_CODEC = 100;
const PARTITIONS = 3;
const WAIT_MS = 30_000;

const kafka = new Kafka({
  clientId: "kafkajs",
  brokers: [process.argv[2]],
  logLevel: logLevel.ERROR,
  retry: { retries: 8 },
});
const admin = kafka.admin();
const topic = "kafkajs-everyday";
const committed = "kafkajs-committed";
let failures = 0;

async function check(name, body) {
  try {
    await body();
    console.log(`CASE\t${name}\tok\t`);
  } catch (error) {
    failures += 1;
    console.log(`CASE\t${name}\tfail\t${String(error?.stack ?? error).split("\n").slice(0, 2).join(" ")}`);
  }
}

/** Reads until there are `count` records, and for a moment longer; with `commit` also commits what was read. */
async function read(group, of, count, { isolation = 1 } = {}) {
  const consumer = kafka.consumer({ groupId: group, readUncommitted: isolation === 0, maxWaitTimeInMs: 200 });
  const records = [];
  await consumer.connect();
  await consumer.subscribe({ topics: [of], fromBeginning: true });
  await consumer.run({
    eachMessage: async ({ partition, message }) => {
      const header = message.headers.number?.toString();
      records.push({ partition, offset: message.offset, key: message.key?.toString(), value: message.value.toString(), header });
    },
  });
  const until = Date.now() + WAIT_MS;
  while (records.length < count && Date.now() < until) {
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  await new Promise((resolve) => setTimeout(resolve, 500));
  await consumer.disconnect();
  return records;
}

const messages = (word, count) =>
  Array.from({ length: count }, (_, number) => ({
    key: `key-${number}`,
    value: `${word}-${number}`,
    headers: { number: String(number) },
  }));

await admin.connect();
await check("create topics", async () => {
  await admin.createTopics({
    waitForLeaders: true,
    topics: [
      { topic, numPartitions: PARTITIONS, configEntries: [{ name: "retention.ms", value: "86400000" }] },
      { topic: committed, numPartitions: 1 },
    ],
  });
  const { topics } = await admin.fetchTopicMetadata({ topics: [topic] });
  assert.equal(topics[0].partitions.length, PARTITIONS);
});

await check("write and read with a group", async () => {
  const producer = kafka.producer({ idempotent: true, maxInFlightRequests: 1 });
  await producer.connect();
  for (const [word, compression] of [["none", CompressionTypes.None], ["gzip", CompressionTypes.GZIP]]) {
    await producer.send({ topic, compression, messages: messages(word, PER_CODEC) });
  }
  await producer.disconnect();
  const records = await read("kafkajs-group", topic, 2 * PER_CODEC);
  const found = records.map(({ key, value, header }) => `${key} ${value} ${header}`).sort();
  const expected = ["none", "gzip"]
    .flatMap((word) => messages(word, PER_CODEC))
    .map(({ key, value, headers }) => `${key} ${value} ${headers.number}`)
    .sort();
  assert.deepEqual(found, expected);
});

await check("the group goes on where it was", async () => {
  const producer = kafka.producer();
  await producer.connect();
  await producer.send({ topic, messages: messages("more", 10) });
  await producer.disconnect();
  const records = await read("kafkajs-group", topic, 10);
  assert.deepEqual(records.map(({ value }) => value).sort(), messages("more", 10).map(({ value }) => value).sort());
  const offsets = await admin.fetchOffsets({ groupId: "kafkajs-group", topics: [topic] });
  const sum = offsets[0].partitions.reduce((sum, { offset }) => sum + Number(offset), 0);
  assert.equal(sum, 2 * PER_CODEC + 10);
});

await check("transactions", async () => {
  const producer = kafka.producer({ idempotent: true, maxInFlightRequests: 1, transactionalId: "kafkajs-transactional" });
  await producer.connect();
  const aborted = await producer.transaction();
  await aborted.send({ topic: committed, messages: messages("aborted", 5) });
  await aborted.abort();
  const transaction = await producer.transaction();
  await transaction.send({ topic: committed, messages: messages("committed", 5) });
  await transaction.sendOffsets({
    consumerGroupId: "kafkajs-transactional-group",
    topics: [{ topic, partitions: [{ partition: 0, offset: "7" }] }],
  });
  await transaction.commit();
  await producer.disconnect();
  const values = (await read("kafkajs-committed-group", committed, 5)).map(({ value }) => value);
  assert.deepEqual(values, messages("committed", 5).map(({ value }) => value));
  const offsets = await admin.fetchOffsets({ groupId: "kafkajs-transactional-group", topics: [topic] });
  assert.equal(offsets[0].partitions.find(({ partition }) => partition === 0).offset, "7");
});

await check("offsets, settings, groups and deletions", async () => {
  const offsets = await admin.fetchTopicOffsets(topic);
  assert.equal(offsets.reduce((sum, { high }) => sum + Number(high), 0), 2 * PER_CODEC + 10);
  const past = await admin.fetchTopicOffsetsByTimestamp(topic, 0);
  assert.ok(past.every(({ offset }) => offset === "0"));
  const { resources } = await admin.describeConfigs({
    includeSynonyms: false,
    resources: [{ type: ConfigResourceTypes.TOPIC, name: topic }],
  });
  const retention = resources[0].configEntries.find(({ configName }) => configName === "retention.ms");
  assert.equal(retention.configValue, "86400000");
  await admin.alterConfigs({
    validateOnly: false,
    resources: [{ type: ConfigResourceTypes.TOPIC, name: topic, configEntries: [{ name: "retention.ms", value: "3600000" }] }],
  });
  await admin.createPartitions({ topicPartitions: [{ topic, count: PARTITIONS + 1 }] });
  const { groups } = await admin.listGroups();
  assert.ok(groups.some(({ groupId }) => groupId === "kafkajs-group"));
  const described = await admin.describeGroups(["kafkajs-group"]);
  assert.equal(described.groups[0].state, "Empty");
  await admin.setOffsets({ groupId: "kafkajs-group", topic, partitions: [{ partition: 0, offset: "3" }] });
  await admin.deleteTopicRecords({ topic, partitions: [{ partition: 0, offset: "5" }] });
  await admin.deleteGroups(["kafkajs-group"]);
  await admin.deleteTopics({ topics: [topic] });
  assert.ok(!(await admin.listTopics()).includes(topic));
});

await admin.disconnect();
process.exit(failures === 0 ? 0 : 1);
