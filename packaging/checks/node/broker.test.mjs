// Tests as a user of the npm package writes them; they run in an empty project with it installed.

import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import kafkajs from "kafkajs";
import { startBroker } from "ottla";

const RECORDS = 100;

async function roundTrip(brokers) {
  const topic = `round-trip-${process.hrtime.bigint()}`;
  const kafka = new kafkajs.Kafka({ brokers, logLevel: kafkajs.logLevel.ERROR });
  const sent = Array.from({ length: RECORDS }, (_, number) => `record ${number}`);
  const producer = kafka.producer();
  await producer.connect();
  await producer.send({ topic, acks: -1, messages: sent.map((value) => ({ value })) });
  await producer.disconnect();
  assert.deepEqual((await consume(kafka, topic)).sort(), sent.sort());
}

async function consume(kafka, topic) {
  const consumer = kafka.consumer({ groupId: topic });
  await consumer.connect();
  await consumer.subscribe({ topic, fromBeginning: true });
  const values = [];
  await new Promise((resolve, reject) => {
    consumer.on(consumer.events.CRASH, (event) => reject(event.payload.error));
    consumer.run({
      eachMessage: async ({ message }) => {
        values.push(message.value.toString());
        if (values.length === RECORDS) {
          resolve();
        }
      },
    });
  });
  await consumer.disconnect();
  return values;
}

test("a broker for a test", async (t) => {
  const broker = await startBroker({ properties: { "num.partitions": 3 } });
  t.after(() => broker.stop());
  await roundTrip(broker.brokers);
  assert.match(broker.adminUrl, /^http:\/\/127\.0\.0\.1:/);
  assert.match(broker.log, /started/);
});

test("disposing stops the broker and removes its directory", async () => {
  const broker = await startBroker();
  assert.ok(existsSync(broker.dataDirectory));
  await broker[Symbol.asyncDispose]();
  assert.equal(broker.isRunning(), false);
  assert.equal(existsSync(broker.dataDirectory), false);
});

test("what the broker says against a start is in the error", async () => {
  await assert.rejects(startBroker({ properties: { "num.partitions": "none" } }), /status 2.*num\.partitions/s);
});

test("a program that cannot be started is named in the error", async (t) => {
  process.env.OTTLA_BINARY = "/nowhere/ottla";
  t.after(() => delete process.env.OTTLA_BINARY);
  await assert.rejects(startBroker(), /\/nowhere\/ottla/);
});

test("a broker that is killed is no success", async () => {
  const broker = await startBroker();
  process.kill(broker.pid, "SIGKILL");
  while (broker.isRunning()) {
    await sleep(10);
  }
  await assert.rejects(broker.stop(), /SIGKILL/);
});

test("a test that is killed leaves no broker", async () => {
  const script = "require('ottla').startBroker().then((b) => { console.log(b.pid); setInterval(() => {}, 1000); })";
  const child = spawn(process.execPath, ["-e", script], { stdio: ["ignore", "pipe", "inherit"] });
  const [output] = await once(child.stdout, "data");
  child.kill("SIGKILL");
  while (isAlive(Number(output))) {
    await sleep(10);
  }
});

// A broker keeps Node.js running until it is stopped, unless it is forgotten.
test("a test that forgets its broker ends", async () => {
  const script = "require('ottla').startBroker().then((b) => console.log(b.pid))";
  const pid = Number(execFileSync(process.execPath, ["-e", script], { encoding: "utf8", timeout: 60_000 }));
  while (isAlive(pid)) {
    await sleep(10);
  }
});

test("npx finds the program", () => {
  const output = execFileSync("npx", ["--no-install", "ottla", "--version"], { encoding: "utf8" });
  assert.match(output, /^ottla /);
});

test("the program's exit status is passed on", () => {
  const script = createRequire(import.meta.url).resolve("ottla/bin/ottla.js");
  const failure = (() => {
    try {
      execFileSync(process.execPath, [script, "serve", "--unknown"], { stdio: "ignore" });
    } catch (error) {
      return error.status;
    }
  })();
  assert.equal(failure, 2);
});

/** A zombie has ended: in a container there may be no process that waits for it. */
function isAlive(pid) {
  try {
    return !readFileSync(`/proc/${pid}/status`, "utf8").includes("State:\tZ");
  } catch {
    return false;
  }
}
