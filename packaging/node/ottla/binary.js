"use strict";
// Where the program is: in the package of this platform, unless OTTLA_BINARY names another one.

/** @returns {string} the path of the program `ottla` */
function findBinary() {
  if (process.env.OTTLA_BINARY) {
    return process.env.OTTLA_BINARY;
  }
  const name = `@ottla/${process.platform}-${process.arch}`;
  try {
    return require.resolve(`${name}/bin/ottla`);
  } catch (cause) {
    const reason = `the package ${name} is not installed: there may be none for this platform, or optional ` +
      "dependencies were left out; OTTLA_BINARY can name the program";
    throw new Error(reason, { cause });
  }
}

module.exports = { findBinary };
