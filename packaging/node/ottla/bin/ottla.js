#!/usr/bin/env node
"use strict";
// `npx ottla …`: the program, with this process's arguments, streams and signals.

const { spawn } = require("node:child_process");
const { findBinary } = require("../binary.js");

const child = spawn(findBinary(), process.argv.slice(2), { stdio: "inherit" });
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) {
  process.on(signal, () => child.kill(signal));
}
child.on("error", (error) => {
  console.error(`ottla: ${error.message}`);
  process.exitCode = 1;
});
child.on("exit", (status, signal) => {
  if (signal === null) {
    process.exitCode = status;
  } else {
    // The same end for this process, without its own handlers.
    process.removeAllListeners(signal);
    process.kill(process.pid, signal);
  }
});
