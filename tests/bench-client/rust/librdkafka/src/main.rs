//! librdkafka through its C interface: `rd_kafka_produce` with a delivery callback,
//! `rd_kafka_consume_batch_queue`.
//!
//! The safe wrapper of the `rdkafka` crate allocates for every record; this is as fast as a C
//! program.

use std::collections::VecDeque;
use std::ffi::{CStr, CString, c_char, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::Thread;

use rdkafka_sys::*;
use skeleton::arguments::Arguments;
use skeleton::consume::{self, Ledger, Read};
use skeleton::produce::{self, Answers, Item, Job, Load};

fn main() {
    let arguments = Arguments::of_process();
    match arguments.mode.as_str() {
        "produce" => {
            let load = Load::from(&arguments);
            produce::run(&load, &Producer::new(&load));
        }
        "consume" => {
            let read = Read::from(&arguments);
            consume::run(&read, &mut Consumer::new(&read));
        }
        other => panic!("unknown mode {other}"),
    }
}

fn c_string(text: &str) -> CString {
    CString::new(text).expect("no setting holds a zero byte")
}

fn version() -> String {
    // SAFETY: returns a static string.
    let text = unsafe { CStr::from_ptr(rd_kafka_version_str()) };
    format!("librdkafka {}", text.to_string_lossy())
}

/// Panics with librdkafka's message if a setting is refused.
fn configuration(settings: &[(&str, String)]) -> *mut rd_kafka_conf_t {
    // SAFETY: the strings outlive each call, and the error buffer has the size that is passed.
    unsafe {
        let conf = rd_kafka_conf_new();
        for (key, value) in settings {
            let mut error = [0 as c_char; 512];
            let (name, text) = (c_string(key), c_string(value));
            let outcome = rd_kafka_conf_set(
                conf,
                name.as_ptr(),
                text.as_ptr(),
                error.as_mut_ptr(),
                error.len(),
            );
            assert!(
                outcome as i32 == rd_kafka_conf_res_t::RD_KAFKA_CONF_OK as i32,
                "{key}={value}: {:?}",
                CStr::from_ptr(error.as_ptr())
            );
        }
        conf
    }
}

fn client(kind: rd_kafka_type_t, conf: *mut rd_kafka_conf_t) -> *mut rd_kafka_t {
    let mut error = [0 as c_char; 512];
    // SAFETY: `conf` is ours until here and belongs to the client from here on.
    let client = unsafe { rd_kafka_new(kind, conf, error.as_mut_ptr(), error.len()) };
    // SAFETY: librdkafka ends its text with a zero.
    assert!(!client.is_null(), "{:?}", unsafe {
        CStr::from_ptr(error.as_ptr())
    });
    client
}

fn text_of(error: rd_kafka_resp_err_t) -> String {
    // SAFETY: returns a static string.
    unsafe { CStr::from_ptr(rd_kafka_err2str(error)) }
        .to_string_lossy()
        .into_owned()
}

/// The receiver of delivery reports. Warm-up and measured part do not overlap.
static ANSWERS: AtomicPtr<Answers> = AtomicPtr::new(ptr::null_mut());

/// The message's opaque is the record's slot plus one.
unsafe extern "C" fn delivered(_: *mut rd_kafka_t, message: *const rd_kafka_message_t, _: *mut c_void) {
    // SAFETY: librdkafka passes a message that lives as long as this call; answers are never freed.
    let (message, answers) = unsafe { (&*message, &*ANSWERS.load(Ordering::Relaxed)) };
    if message.err as i32 == 0 {
        answers.acknowledged((message._private as u64).wrapping_sub(1));
    } else {
        answers.failed(&text_of(message.err));
    }
}

/// A future for one record's result, as an application would build it on the delivery callback.
struct Delivery {
    state: AtomicU8,
    waiter: Thread,
    error: Mutex<Option<String>>,
}

const OPEN: u8 = 0;
const WAITING: u8 = 1;
const DONE: u8 = 2;

impl Delivery {
    fn new() -> Arc<Delivery> {
        Arc::new(Delivery {
            state: AtomicU8::new(OPEN),
            waiter: std::thread::current(),
            error: Mutex::new(None),
        })
    }

    fn complete(&self, error: rd_kafka_resp_err_t) {
        if error as i32 != 0 {
            *self.error.lock().expect("no holder panics") = Some(text_of(error));
        }
        if self.state.swap(DONE, Ordering::AcqRel) == WAITING {
            self.waiter.unpark();
        }
    }

    fn is_done(&self) -> bool {
        self.state.load(Ordering::Acquire) == DONE
    }

    fn wait(&self) {
        let waits = self
            .state
            .compare_exchange(OPEN, WAITING, Ordering::AcqRel, Ordering::Acquire);
        while waits.is_ok() && !self.is_done() {
            std::thread::park();
        }
    }

    fn count(&self, slot: u64, answers: &Answers) {
        match &*self.error.lock().expect("no holder panics") {
            None => answers.acknowledged(slot),
            Some(error) => answers.failed(error),
        }
    }
}

/// The message's opaque is a `Delivery`.
unsafe extern "C" fn completed(_: *mut rd_kafka_t, message: *const rd_kafka_message_t, _: *mut c_void) {
    // SAFETY: librdkafka passes a message that lives as long as this call, and each opaque once.
    let (message, delivery) = unsafe {
        let message = &*message;
        (message, Arc::from_raw(message._private.cast::<Delivery>().cast_const()))
    };
    delivery.complete(message.err);
}

struct Producer {
    client: *mut rd_kafka_t,
    topic: *mut rd_kafka_topic_t,
    slow_topic: *mut rd_kafka_topic_t,
    wants_futures: bool,
}

// SAFETY: librdkafka's handles may be used by any number of threads.
unsafe impl Sync for Producer {}

impl Producer {
    fn new(load: &Load) -> Producer {
        let mut settings = vec![
            ("bootstrap.servers", load.bootstrap.clone()),
            ("acks", "all".to_string()),
            ("enable.idempotence", "true".to_string()),
            ("compression.type", load.compression.clone()),
        ];
        if let Some(bytes) = load.batch_bytes {
            settings.push(("batch.size", bytes.to_string()));
            // The default closes a batch at 10,000 records, before the byte limit.
            settings.push(("batch.num.messages", "1000000".to_string()));
            settings.push(("message.max.bytes", bytes.max(1_000_000).to_string()));
        }
        if let Some(milliseconds) = load.linger_ms {
            settings.push(("linger.ms", milliseconds.to_string()));
        }
        if let Some(bytes) = load.buffer_bytes {
            settings.push(("queue.buffering.max.kbytes", (bytes / 1024).to_string()));
            settings.push(("queue.buffering.max.messages", "0".to_string()));
        }
        let conf = configuration(&settings);
        // SAFETY: `conf` is valid until `client` takes it.
        let wants_futures = load.answers == "futures";
        let callback = if wants_futures { completed } else { delivered };
        // SAFETY: `conf` is valid until `client` takes it.
        unsafe { rd_kafka_conf_set_dr_msg_cb(conf, Some(callback)) };
        let client = client(rd_kafka_type_t::RD_KAFKA_PRODUCER, conf);
        let topic = |name: &str| {
            let name = c_string(name);
            // SAFETY: no topic configuration is passed.
            unsafe { rd_kafka_topic_new(client, name.as_ptr(), ptr::null_mut()) }
        };
        let producer = Producer {
            client,
            topic: topic(&load.topic),
            slow_topic: if load.slow_topic.is_empty() {
                ptr::null_mut()
            } else {
                topic(&load.slow_topic)
            },
            wants_futures,
        };
        let address = client as usize;
        // Serves delivery reports until the process ends.
        std::thread::spawn(move || {
            loop {
                // SAFETY: the client is never destroyed.
                unsafe { rd_kafka_poll(address as *mut rd_kafka_t, 100) };
            }
        });
        producer
    }
}

impl Producer {
    fn send(&self, item: &Item, opaque: *mut c_void) -> Result<(), String> {
        let topic = if item.slow { self.slow_topic } else { self.topic };
        // Waits for room in the queue, and copies the value.
        let flags = RD_KAFKA_MSG_F_COPY | RD_KAFKA_MSG_F_BLOCK;
        // SAFETY: the value is copied before the call returns.
        let outcome = unsafe {
            rd_kafka_produce(
                topic,
                item.partition,
                flags,
                item.value.as_ptr().cast_mut().cast(),
                item.value.len(),
                ptr::null(),
                0,
                opaque,
            )
        };
        match outcome {
            0 => Ok(()),
            // SAFETY: reads a value of this thread.
            _ => Err(text_of(unsafe { rd_kafka_last_error() })),
        }
    }

    fn send_futures(&self, job: &mut Job, answers: &'static Answers) {
        let mut waiting: VecDeque<(u64, Arc<Delivery>)> = VecDeque::new();
        while let Some(item) = job.next() {
            let delivery = Delivery::new();
            let opaque = Arc::into_raw(Arc::clone(&delivery));
            match self.send(&item, opaque.cast_mut().cast()) {
                Ok(()) => waiting.push_back((item.slot, delivery)),
                Err(error) => {
                    // SAFETY: the message was refused, so no callback gets the opaque.
                    drop(unsafe { Arc::from_raw(opaque) });
                    answers.failed(&error);
                }
            }
            if waiting.len().is_multiple_of(64) {
                while let Some((slot, delivery)) = waiting.pop_front_if(|(_, first)| first.is_done()) {
                    delivery.count(slot, answers);
                }
            }
        }
        for (slot, delivery) in waiting {
            delivery.wait();
            delivery.count(slot, answers);
        }
    }
}

impl produce::Contender for Producer {
    fn version(&self) -> String {
        version()
    }

    fn send_all(&self, job: &mut Job, answers: &'static Answers) {
        if self.wants_futures {
            return self.send_futures(job, answers);
        }
        ANSWERS.store(ptr::from_ref(answers).cast_mut(), Ordering::Relaxed);
        while let Some(item) = job.next() {
            if let Err(error) = self.send(&item, item.slot.wrapping_add(1) as *mut c_void) {
                answers.failed(&error);
            }
        }
    }

    fn flush(&self) {
        // SAFETY: the client is never destroyed.
        unsafe { rd_kafka_flush(self.client, 120_000) };
    }
}

struct Consumer {
    client: *mut rd_kafka_t,
    queue: *mut rd_kafka_queue_t,
    topic: String,
    partitions: i32,
}

/// Messages taken from the queue by one call.
const BATCH: usize = 10_000;

impl Consumer {
    fn new(read: &Read) -> Consumer {
        let conf = configuration(&[
            ("bootstrap.servers", read.bootstrap.clone()),
            ("group.id", "bench-client".to_string()),
            ("enable.auto.commit", "false".to_string()),
            ("auto.offset.reset", "earliest".to_string()),
            // With the default of 1,000 ms a fast reader starves between two fetches.
            ("fetch.queue.backoff.ms", "10".to_string()),
            ("check.crcs", "true".to_string()),
        ]);
        let client = client(rd_kafka_type_t::RD_KAFKA_CONSUMER, conf);
        // SAFETY: the client is never destroyed.
        let queue = unsafe {
            rd_kafka_poll_set_consumer(client);
            rd_kafka_queue_get_consumer(client)
        };
        Consumer {
            client,
            queue,
            topic: read.topic.clone(),
            partitions: read.partitions,
        }
    }
}

impl consume::Contender for Consumer {
    fn version(&self) -> String {
        version()
    }

    fn rewind(&mut self) {
        let topic = c_string(&self.topic);
        // SAFETY: the list is ours, and librdkafka copies what it needs.
        unsafe {
            let list = rd_kafka_topic_partition_list_new(self.partitions);
            for partition in 0..self.partitions {
                (*rd_kafka_topic_partition_list_add(list, topic.as_ptr(), partition)).offset = 0;
            }
            let outcome = rd_kafka_assign(self.client, list);
            assert!(outcome as i32 == 0, "assign: {}", text_of(outcome));
            rd_kafka_topic_partition_list_destroy(list);
        }
    }

    fn read(&mut self, records: u64, ledger: &mut Ledger) {
        let mut messages = vec![ptr::null_mut(); BATCH];
        while ledger.records < records {
            // SAFETY: the array has `BATCH` places.
            let count =
                unsafe { rd_kafka_consume_batch_queue(self.queue, 100, messages.as_mut_ptr(), BATCH) };
            let count = usize::try_from(count).expect("consume_batch_queue fails only on wrong use");
            for &message in &messages[..count] {
                // SAFETY: each message is ours until it is destroyed, once, here.
                unsafe {
                    let found = &*message;
                    assert!(found.err as i32 == 0, "{}", text_of(found.err));
                    let value = std::slice::from_raw_parts(found.payload.cast::<u8>(), found.len);
                    ledger.see(found.partition, found.offset, value);
                    rd_kafka_message_destroy(message);
                }
            }
        }
    }
}
