#!/usr/bin/env node
// Runs the binary that came in the package of this platform. Nothing is downloaded and no install script runs.
"use strict";

const { spawn } = require("node:child_process");
const { constants } = require("node:os");

const platform = `@fencehold/${process.platform}-${process.arch}`;

function binary() {
  try {
    return require.resolve(`${platform}/bin/fencehold`);
  } catch {
    console.error(
      `fencehold: the package ${platform}, which has the binary for this platform, is not installed.\n` +
        "If your platform has one, install again without --omit=optional (or --no-optional).\n" +
        "Otherwise build it from source: cargo install fencehold-cli",
    );
    process.exit(1);
  }
}

const path = binary();
const args = process.argv.slice(2);

if (process.execve) {
  // Node becomes the binary, so whoever started us signals and waits for the right process.
  process.execve(path, [path, ...args], process.env);
}

const child = spawn(path, args, { stdio: "inherit" });
const signals = ["SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2"];
for (const signal of signals) {
  process.on(signal, () => child.kill(signal));
}
child.on("error", (error) => {
  console.error(`fencehold: ${path} cannot be started: ${error.message}`);
  process.exit(1);
});
child.on("exit", (code, signal) => process.exit(signal ? 128 + constants.signals[signal] : code));
