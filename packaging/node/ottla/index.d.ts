/** A running broker. `startBroker` makes one. */
export interface Broker {
  /** What clients call bootstrap.servers: `host:port`, separated by commas. */
  readonly bootstrapServers: string;
  /** The same as a list. */
  readonly brokers: string[];
  /** The address of the console, /metrics and the doctor; undefined if it is disabled. */
  readonly adminUrl: string | undefined;
  readonly clusterId: string;
  readonly dataDirectory: string;
  readonly pid: number;
  /** What the broker has written to standard error; the last MiB of it. */
  readonly log: string;
  isRunning(): boolean;
  /** Stops the broker and removes its directory; rejects, with the log, if it had ended by itself. */
  stop(): Promise<void>;
  /** `await using broker = await startBroker()` */
  [Symbol.asyncDispose](): Promise<void>;
}

export interface StartOptions {
  /** Keys of server.properties, such as `{ "num.partitions": 3 }`. */
  properties?: Record<string, string | number | boolean>;
  /** How long the start may take; 30,000 if not set. */
  startMsMax?: number;
}

/**
 * Starts a broker on a free port of 127.0.0.1, with a temporary directory. It also stops when this
 * process ends. Rejects, with the broker's log, if it does not start.
 */
export function startBroker(options?: StartOptions): Promise<Broker>;

/** The path of the program `ottla`. */
export function findBinary(): string;
