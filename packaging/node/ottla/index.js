"use strict";
// A broker for a test: a child process with a directory of its own.

const { spawn } = require("node:child_process");
const { once } = require("node:events");
const fs = require("node:fs/promises");
const os = require("node:os");
const path = require("node:path");
const { findBinary } = require("./binary.js");

// What suits a test. Records live as long as the test, so nothing waits for the disk.
const DEFAULTS = {
  "listeners": "PLAINTEXT://127.0.0.1:0",
  "ottla.admin.listener": "127.0.0.1:0",
  "ottla.durability": "page-cache",
  "group.initial.rebalance.delay.ms": "0",
};

const LOG_CHARACTERS_MAX = 1 << 20;
const LOG_CHARACTERS_SHOWN = 4096;
const STOP_MS_MAX = 10_000;

class Broker {
  #child;
  #ended;
  #directory;
  #log;
  #stopping = null;

  constructor(child, ended, directory, log, readyLine) {
    const facts = new Map(readyLine.split(" ").map((word) => word.split(/=(.*)/s, 2)));
    const listeners = facts.get("listeners");
    this.bootstrapServers = listeners.replace(/[A-Z0-9_.-]+:\/\//g, "");
    this.brokers = this.bootstrapServers.split(",");
    this.adminUrl = facts.get("admin");
    this.clusterId = facts.get("cluster.id");
    this.dataDirectory = path.join(directory, "data");
    this.#child = child;
    this.#ended = ended;
    this.#directory = directory;
    this.#log = log;
  }

  get pid() {
    return this.#child.pid;
  }

  get log() {
    return this.#log.text;
  }

  isRunning() {
    return this.#child.exitCode === null && this.#child.signalCode === null;
  }

  stop() {
    this.#stopping ??= this.#stop();
    return this.#stopping;
  }

  async #stop() {
    const endedByItself = !this.isRunning();
    await end(this.#child, this.#ended);
    await fs.rm(this.#directory, { recursive: true, force: true });
    if (endedByItself) {
      throw new Error(`the broker ended with ${endOf(this.#child)}${this.#log.end()}`);
    }
  }

  [Symbol.asyncDispose]() {
    return this.stop();
  }
}

/** The end of what the broker writes to standard error. */
class Log {
  text = "";

  read(stream) {
    stream.setEncoding("utf8");
    stream.on("data", (text) => {
      this.text = (this.text + text).slice(-LOG_CHARACTERS_MAX);
    });
  }

  end() {
    const text = this.text.slice(-LOG_CHARACTERS_SHOWN);
    return text.trim() === "" ? "; its log is empty" : `; its log:\n${text}`;
  }
}

async function startBroker({ properties = {}, startMsMax = 30_000 } = {}) {
  const binary = findBinary();
  const directory = await fs.mkdtemp(path.join(os.tmpdir(), "ottla-"));
  const wanted = { "log.dirs": path.join(directory, "data"), ...DEFAULTS, ...properties };
  const overrides = Object.entries(wanted).flatMap(([key, value]) => ["--override", `${key}=${value}`]);
  // The broker stops when its standard input ends: also when this process is killed.
  const child = spawn(binary, ["serve", "--stop-with-stdin", ...overrides], { cwd: directory });
  const ended = once(child, "close");
  const log = new Log();
  try {
    log.read(child.stderr);
    const readyLine = await firstLine(child, ended, log, startMsMax);
    // A test that forgets to stop it does not keep Node.js running.
    handles(child).forEach((handle) => handle.unref());
    return new Broker(child, ended, directory, log, readyLine);
  } catch (error) {
    await end(child, ended);
    await fs.rm(directory, { recursive: true, force: true });
    throw error;
  }
}

/** Waits for the line that `ottla serve` prints when it accepts connections. */
async function firstLine(child, ended, log, msMax) {
  let timer;
  const late = new Promise((_, reject) => {
    const fail = () => reject(new Error(`the broker was not ready within ${msMax} ms${log.end()}`));
    timer = setTimeout(fail, msMax);
  });
  const dead = ended.then(() => {
    throw new Error(`the broker did not start: ${endOf(child)}${log.end()}`);
  });
  try {
    return await Promise.race([readLine(child.stdout), dead, late]);
  } finally {
    clearTimeout(timer);
    // Only the race has to hear of it.
    dead.catch(() => {});
  }
}

function readLine(stream) {
  return new Promise((resolve) => {
    let text = "";
    stream.setEncoding("utf8");
    stream.on("data", (more) => {
      text += more;
      const end = text.indexOf("\n");
      if (end >= 0) {
        resolve(text.slice(0, end));
      }
    });
  });
}

function handles(child) {
  return [child, child.stdin, child.stdout, child.stderr];
}

async function end(child, ended) {
  handles(child).forEach((handle) => handle.ref());
  const timer = setTimeout(() => child.kill("SIGKILL"), STOP_MS_MAX);
  child.kill("SIGTERM");
  // Rejected where the program could not be started, which the caller has reported.
  await ended.catch(() => {});
  clearTimeout(timer);
}

function endOf(child) {
  return child.signalCode === null ? `status ${child.exitCode}` : `signal ${child.signalCode}`;
}

module.exports = { startBroker, findBinary };
