// Compiled, not run: what a user of the types may write.

import { findBinary, startBroker, type Broker } from "ottla";

export async function brokers(): Promise<string[]> {
  await using broker: Broker = await startBroker({ properties: { "num.partitions": 3 }, startMsMax: 5000 });
  const path: string = findBinary();
  // @ts-expect-error: a name that does not exist is an error.
  broker.boostrapServers;
  return [...broker.brokers, broker.bootstrapServers, path];
}
