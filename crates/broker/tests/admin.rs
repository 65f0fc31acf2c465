//! The admin address against hostile input: pages of other sites, slow and greedy peers, garbage,
//! and too many connections.

#![allow(clippy::unwrap_used, reason = "a failed step of a test is a failed test")]

mod support;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use ottla_broker::http::server::{HttpLimits, HttpServer, Patience};
use ottla_broker::{Broker, Page, PageBody};
use support::http::{Answer, ask, read};
use support::{Client, HANG, frame_of};

fn broker(properties: &[(&str, &str)]) -> (Broker, SocketAddr) {
    let all = [&[("ottla.admin.listener", "127.0.0.1:0")], properties].concat();
    let broker = Broker::start_temporary(&all).unwrap();
    let address = broker.admin_address().unwrap();
    (broker, address)
}

/// Sends a request with this method, target and headers.
fn asked(address: SocketAddr, method: &str, target: &str, headers: &[&str]) -> Answer {
    let head = format!(
        "{method} {target} HTTP/1.1\r\nConnection: close\r\n{}\r\n",
        headers.concat()
    );
    ask(address, head.as_bytes())
}

const HOST: &str = "Host: localhost\r\n";

#[test]
fn only_names_of_this_machine_are_served() {
    let (_broker, address) = broker(&[
        ("ottla.admin.hosts", "metrics.internal, OTHER.internal"),
        ("advertised.listeners", "PLAINTEXT://kafka.example:9092"),
    ]);
    let status = |host: &str| asked(address, "GET", "/health", &[&format!("Host: {host}\r\n")]).status;
    for own in [
        &address.to_string(),
        "localhost",
        "localhost:80",
        "127.0.0.1",
        "[::1]:9644",
        "192.168.1.7",
        "metrics.internal:9644",
        "other.internal",
        "kafka.example:9644",
    ] {
        assert_eq!(status(own), 200, "{own}");
    }
    for strange in [
        "evil.example",
        "evil.example:9644",
        "127.0.0.1.evil.example",
        "internal",
        "localhost.evil.example",
    ] {
        assert_eq!(status(strange), 421, "{strange}");
    }
    // The name may be in the target as well, where it takes precedence.
    let target = "http://evil.example/health";
    assert_eq!(asked(address, "GET", target, &[HOST]).status, 421);
    assert_eq!(asked(address, "GET", "/health", &[]).status, 400);
    assert_eq!(
        asked(address, "GET", "/health", &[HOST, "Host: evil.example\r\n"]).status,
        400
    );
    assert_eq!(ask(address, b"GET /health HTTP/1.0\r\n\r\n").status, 200);
    assert_eq!(
        ask(address, b"GET /health HTTP/1.0\r\nHost: evil.example\r\n\r\n").status,
        421
    );
}

#[test]
fn no_page_of_another_site_reads_or_changes_anything() {
    let (broker, address) = broker(&[]);
    let change = "X-Ottla-Admin: 1\r\n";
    let begin = "/debug/batches?seconds=60";
    let is_on = || broker.node().services().batch_times.is_on();
    let refused = |method, target, headers: &[&str]| {
        let answer = asked(address, method, target, &[&[HOST], headers].concat());
        assert_eq!(answer.status, 403, "{method} {headers:?}: {answer:?}");
        assert!(!answer.head.contains("access-control"), "{answer:?}");
        assert!(!is_on(), "{headers:?}");
    };
    // What a form or a script can send without a preflight.
    refused("POST", begin, &[]);
    refused("POST", begin, &["Content-Type: text/plain\r\n"]);
    refused("POST", begin, &[change, "Origin: http://evil.example\r\n"]);
    refused("POST", begin, &[change, "Origin: null\r\n"]);
    refused("POST", begin, &[change, "Sec-Fetch-Site: cross-site\r\n"]);
    refused("POST", begin, &[change, "Sec-Fetch-Site: same-site\r\n"]);
    refused("DELETE", "/debug/batches?reader=1", &[]);
    refused(
        "GET",
        "/debug/requests",
        &["Sec-Fetch-Site: cross-site\r\n", "Sec-Fetch-Mode: no-cors\r\n"],
    );
    refused("GET", "/metrics", &["Origin: http://evil.example\r\n"]);
    // Preflights are not granted.
    let preflight = [
        "Origin: http://evil.example\r\n",
        "Access-Control-Request-Method: POST\r\n",
    ];
    refused("OPTIONS", begin, &preflight);
    let own = [
        "Origin: http://localhost\r\n",
        "Sec-Fetch-Site: same-origin\r\n",
        change,
        HOST,
    ];
    let answer = asked(address, "POST", begin, &own);
    assert!(answer.status == 200 && is_on(), "{answer:?}");
    let followed = [
        HOST,
        "Sec-Fetch-Site: cross-site\r\n",
        "Sec-Fetch-Mode: navigate\r\n",
    ];
    assert_eq!(
        asked(address, "GET", "/metrics", &followed).status,
        200,
        "a link in a wiki"
    );
    assert!(
        answer.head.contains("x-content-type-options: nosniff"),
        "{answer:?}"
    );
}

#[test]
fn reading_is_repeatable_and_readers_are_independent() {
    let (_broker, address) = broker(&[]);
    let change = |method, target: &str| asked(address, method, target, &[HOST, "X-Ottla-Admin: 1\r\n"]);
    let reader = |answer: &Answer| -> u64 {
        let document: serde_json::Value = serde_json::from_str(&answer.body).unwrap();
        document["reader"].as_u64().unwrap()
    };
    let first = reader(&change("POST", "/debug/batches?seconds=60"));
    let second = reader(&change("POST", "/debug/batches?seconds=60"));
    assert_ne!(first, second);
    let page = |reader| {
        asked(
            address,
            "GET",
            &format!("/debug/batches?reader={reader}"),
            &[HOST],
        )
    };
    assert_eq!(page(first).body, page(first).body);
    assert_eq!(change("DELETE", "/debug/batches").status, 400);
    assert_eq!(
        change("DELETE", &format!("/debug/batches?reader={second}")).status,
        200
    );
    assert_eq!((page(first).status, page(second).status), (200, 404));
    assert!(page(first).body.contains("\"is_recording\":true"));
    let long = [HOST, "X-Ottla-Admin: 1\r\n", "Content-Length: 65537\r\n"];
    assert_eq!(
        asked(address, "POST", "/debug/batches?seconds=1", &long).status,
        413
    );
    for bad in ["?reader=", "?reader=x", "?seconds=1"] {
        assert_eq!(
            asked(address, "GET", &format!("/debug/batches{bad}"), &[HOST]).status,
            400
        );
    }
    // Gauges have a fixed window: a frequent reader does not shorten another's.
    let idle = || {
        let page = asked(address, "GET", "/metrics", &[HOST]).body;
        let name = "kafka_network_socketserver_networkprocessoravgidle_percent ";
        let value = page.lines().find_map(|line| line.strip_prefix(name));
        value.unwrap().parse::<f64>().unwrap()
    };
    let values: Vec<f64> = (0..5).map(|_| idle()).collect();
    assert!(
        values.iter().all(|value| *value > 0.0 && *value <= 1.0),
        "{values:?}"
    );
}

#[test]
fn names_from_clients_control_no_terminal_on_any_page() {
    let (broker, address) = broker(&[]);
    let name = "evil\n\x1b[2J\u{9b}31m\u{202e}\"";
    let mut client = Client::connect(broker.address());
    // ApiVersions version 0: no body.
    client.send(&frame_of(
        name,
        ottla_wire::api_key::ApiKey::ApiVersions,
        0,
        1,
        |_| {},
    ));
    client.receive(ottla_wire::api_key::ApiKey::ApiVersions, 0, 1);
    for path in ["/metrics", "/tenants", "/quotas", "/debug/requests"] {
        let look = || asked(address, "GET", path, &[HOST]).body;
        // The request is recorded after it was answered.
        support::net::until("the name is shown", || look().contains("evil"));
        let page = look();
        let raw = page
            .chars()
            .find(|letter| *letter != '\n' && !ottla_broker::text::is_printable(*letter));
        assert_eq!(raw, None, "{path}: {page:?}");
        if path != "/metrics" {
            let document: serde_json::Value = serde_json::from_str(&page).unwrap();
            assert!(
                document.to_string().contains("\u{9b}31m\u{202e}"),
                "{path}: the name is preserved"
            );
        }
    }
}

/// A server with a page larger than any socket buffer, and one that blocks.
struct Subject {
    address: SocketAddr,
    held: Arc<Gate>,
    served: Arc<AtomicUsize>,
    _server: HttpServer,
}

/// Where requests for `/held` wait.
#[derive(Default)]
struct Gate {
    state: Mutex<GateState>,
    changed: Condvar,
}

#[derive(Default)]
struct GateState {
    is_open: bool,
    arrived: usize,
}

impl Gate {
    fn pass(&self) {
        let mut state = self.state.lock().unwrap();
        state.arrived += 1;
        self.changed.notify_all();
        drop(self.changed.wait_while(state, |state| !state.is_open).unwrap());
    }

    fn wait_for(&self, arrived: usize) {
        let state = self.state.lock().unwrap();
        let waits = self.changed.wait_while(state, |state| state.arrived < arrived);
        drop(waits.unwrap());
    }

    fn open(&self) {
        self.state.lock().unwrap().is_open = true;
        self.changed.notify_all();
    }
}

const LARGE_BYTES: usize = 64 << 20;

impl Subject {
    fn start(connections_max: usize, patience: Duration) -> Subject {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        rustix::net::listen(&socket, 4_096).unwrap();
        let address = socket.local_addr().unwrap();
        let limits = HttpLimits {
            connections_max,
            patience: Patience {
                for_head: patience,
                for_answer: patience,
                ..Patience::default()
            },
        };
        let held = Arc::new(Gate::default());
        let (gate, served) = (held.clone(), Arc::new(AtomicUsize::new(0)));
        let count = served.clone();
        let router = Router::new()
            .route(
                "/small",
                get(move || {
                    count.fetch_add(1, Ordering::SeqCst);
                    async { "small\n" }
                }),
            )
            .route("/large", get(|| async { vec![b'x'; LARGE_BYTES] }))
            .route(
                "/held",
                get(move || async move {
                    tokio::task::spawn_blocking(move || gate.pass()).await.unwrap();
                    "held\n"
                }),
            );
        let server = HttpServer::start("ottla-test", socket, router, limits, std::future::pending());
        Subject {
            address,
            held,
            served,
            _server: server.unwrap(),
        }
    }

    fn connect(&self) -> TcpStream {
        let socket = TcpStream::connect(self.address).unwrap();
        socket.set_read_timeout(Some(HANG)).unwrap();
        socket
    }

    fn check_served(&self) {
        let answer = ask(
            self.address,
            b"GET /small HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
        );
        assert_eq!((answer.status, &*answer.body), (200, "small\n"));
    }
}

/// Waits until the peer has closed; returns what it sent before.
fn rest_of(mut socket: TcpStream) -> Vec<u8> {
    let mut rest = Vec::new();
    // A close with unread bytes is a reset.
    let _ = socket.read_to_end(&mut rest);
    rest
}

#[test]
fn a_peer_that_is_slow_with_a_head_or_silent_is_closed() {
    let subject = Subject::start(8, Duration::from_millis(200));
    let silent = subject.connect();
    let mut half = subject.connect();
    half.write_all(b"GET /small HTTP/1.1\r\nHost: x\r\nX-A: ")
        .unwrap();
    let mut idle = subject.connect();
    idle.write_all(b"GET /small HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    // Byte after byte without end: progress alone does not extend the limit.
    let mut dripping = subject.connect();
    let mut drops = 0;
    while dripping.write_all(b"x").is_ok() && drops < 10_000 {
        drops += 1;
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(drops < 10_000, "a slow loris was never closed");
    assert!(rest_of(silent).is_empty());
    assert!(rest_of(half).is_empty());
    assert!(
        rest_of(idle).ends_with(b"small\n"),
        "answered, and closed when it sent no further request"
    );
    subject.check_served();
}

#[test]
fn a_peer_that_does_not_take_an_answer_is_closed() {
    let subject = Subject::start(8, Duration::from_millis(200));
    let mut greedy = subject.connect();
    greedy
        .write_all(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n")
        .unwrap();
    // Long enough to be closed; the rest of the answer never arrives.
    std::thread::sleep(Duration::from_secs(1));
    assert!(rest_of(greedy).len() < LARGE_BYTES);
    let taken = ask(
        subject.address,
        b"GET /large HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
    );
    assert_eq!(taken.body.len(), LARGE_BYTES, "a reader gets everything");
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let subject = Subject::start(8, HANG);
    let mut socket = subject.connect();
    let mut requests = b"GET /small HTTP/1.1\r\nHost: x\r\n\r\n".repeat(50);
    requests.extend_from_slice(b"GET /nothing HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    socket.write_all(&requests).unwrap();
    let answers = String::from_utf8(rest_of(socket)).unwrap();
    let statuses: Vec<u16> = answers
        .split("HTTP/1.1")
        .skip(1)
        .map(|one| read(&format!("HTTP/1.1{one}")).status)
        .collect();
    assert_eq!(statuses[..50], [200; 50]);
    assert_eq!(statuses[50..], [404]);
}

#[test]
fn garbage_and_long_heads_are_refused() {
    let subject = Subject::start(8, HANG);
    let long_target = format!("GET /{} HTTP/1.1\r\nHost: x\r\n\r\n", "x".repeat(100_000));
    let long_header = format!(
        "GET /small HTTP/1.1\r\nHost: x\r\nX-A: {}\r\n\r\n",
        "x".repeat(100_000)
    );
    let many_headers = format!(
        "GET /small HTTP/1.1\r\nHost: x\r\n{}\r\n",
        "X-A: 1\r\n".repeat(1_000)
    );
    for bad in [
        b"\0\x01\x02\x03garbage\r\n\r\n".to_vec(),
        b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03".repeat(100),
        b"GET /small HTTP/9.9\r\n\r\n".to_vec(),
        b"get\r\n\r\n".to_vec(),
        long_target.into_bytes(),
        long_header.into_bytes(),
        many_headers.into_bytes(),
    ] {
        let mut socket = subject.connect();
        // It may be closed before everything was sent.
        let _ = socket.write_all(&bad);
        let _ = socket.shutdown(std::net::Shutdown::Write);
        let answer = rest_of(socket);
        let status = read(&String::from_utf8_lossy(&answer)).status;
        assert!(matches!(status, 0 | 400..=499), "{status}");
    }
    assert_eq!(subject.served.load(Ordering::SeqCst), 0);
    subject.check_served();
}

#[test]
fn ten_thousand_connections_take_no_more_than_the_places_and_lock_none_out() {
    const PLACES: usize = 16;
    let subject = Subject::start(PLACES, HANG);
    let open_before = open_descriptors();
    let mut most = 0;
    // In waves, because this process holds both ends: silent connections, and those that begin a
    // request.
    for wave in 0..20 {
        let crowd: Vec<TcpStream> = (0..500)
            .map(|number| {
                let mut socket = subject.connect();
                if number % 2 == 0 {
                    let _ = socket.write_all(b"GET /small HTTP/1.1\r\nHost:");
                }
                socket
            })
            .collect();
        subject.check_served();
        most = most.max(open_descriptors().saturating_sub(open_before + crowd.len()));
        drop(crowd);
        assert!(most <= 2 * PLACES, "wave {wave}: {most} connections were open");
    }
    subject.check_served();
}

#[test]
fn a_connection_being_answered_keeps_its_place() {
    let subject = Subject::start(4, HANG);
    let mut busy: Vec<TcpStream> = (0..4).map(|_| subject.connect()).collect();
    for socket in &mut busy[..2] {
        socket
            .write_all(b"GET /held HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            .unwrap();
    }
    subject.held.wait_for(2);
    for _ in 0..20 {
        subject.check_served();
    }
    subject.held.open();
    for socket in busy.drain(..2) {
        assert!(rest_of(socket).ends_with(b"held\n"));
    }
    let longest = busy.swap_remove(0);
    assert!(
        rest_of(longest).is_empty(),
        "idle for longest, and evicted for a newcomer"
    );
}

fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn a_page_of_the_embedding_program_is_guarded_too() {
    let page = Page {
        path: "/added",
        render: Arc::new(|| PageBody {
            content_type: "application/json",
            text: "{\"name\": \"\u{9b}\"}".to_owned(),
        }),
    };
    let additions = ottla_broker::Additions {
        pages: vec![page],
        ..Default::default()
    };
    let broker = Broker::start_temporary_with(&[("ottla.admin.listener", "127.0.0.1:0")], additions).unwrap();
    let address = broker.admin_address().unwrap();
    assert_eq!(
        asked(address, "GET", "/added", &["Host: evil.example\r\n"]).status,
        421
    );
    assert_eq!(
        asked(address, "GET", "/added", &[HOST]).body,
        "{\"name\": \"\\u009b\"}"
    );
}

const AUTHORIZER: (&str, &str) = (
    "authorizer.class.name",
    "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
);

#[test]
fn with_an_authorizer_every_page_needs_the_token() {
    let (broker, address) = broker(&[AUTHORIZER]);
    let directory = &broker.node().config().log_directories[0];
    let token = std::fs::read_to_string(directory.join("ottla.admin.token")).unwrap();
    let bearer = format!("Authorization: Bearer {}\r\n", token.trim());
    let change = "X-Ottla-Admin: 1\r\n";
    for (method, target) in [
        ("GET", "/metrics"),
        ("GET", "/tenants"),
        ("GET", "/quotas"),
        ("GET", "/debug/requests"),
        ("GET", "/debug/batches?reader=1"),
        ("POST", "/debug/batches?seconds=1"),
        ("DELETE", "/debug/batches?reader=1"),
        ("GET", "/nowhere"),
    ] {
        let status = |headers: &[&str]| {
            let answer = asked(address, method, target, &[&[HOST, change], headers].concat());
            assert!(!answer.body.contains(token.trim()), "{answer:?}");
            answer.status
        };
        assert_eq!(status(&[]), 401, "{method} {target}");
        assert_eq!(status(&["Authorization: Bearer x\r\n"]), 401);
        assert_eq!(status(&[&bearer, "Authorization: Bearer x\r\n"]), 401);
        assert_eq!(status(&[&format!("X-{bearer}")]), 401);
        assert_ne!(status(&[&bearer]), 401, "{method} {target}");
    }
    let refused = asked(address, "GET", "/metrics", &[HOST]);
    assert!(refused.head.contains("www-authenticate: bearer realm=\"ottla\""));
    assert!(refused.head.contains("www-authenticate: basic realm=\"ottla\""));
    for open in ["/health", "/ready"] {
        assert_eq!(asked(address, "GET", open, &[HOST]).status, 200);
    }
    // The target's form does not lead around the token.
    for target in [
        "http://localhost/metrics",
        "/health/../metrics",
        "//metrics",
        "/%6detrics",
    ] {
        assert_ne!(asked(address, "GET", target, &[HOST]).status, 200, "{target}");
    }
}

/// A browser sends the password that it knows with requests of other sites, too.
#[test]
fn a_token_does_not_let_pages_of_other_sites_in() {
    let (broker, address) = broker(&[AUTHORIZER]);
    let directory = &broker.node().config().log_directories[0];
    let token = std::fs::read_to_string(directory.join("ottla.admin.token")).unwrap();
    let bearer = format!("Authorization: Bearer {}\r\n", token.trim());
    let status = |method, target, headers: &[&str]| {
        asked(address, method, target, &[&[bearer.as_str()], headers].concat()).status
    };
    assert_eq!(status("GET", "/metrics", &[HOST]), 200);
    assert_eq!(status("GET", "/metrics", &["Host: evil.example\r\n"]), 421);
    assert_eq!(
        status("GET", "/metrics", &[HOST, "Origin: http://evil.example\r\n"]),
        403
    );
    let begin = "/debug/batches?seconds=60";
    let form = "Content-Type: application/x-www-form-urlencoded\r\n";
    assert_eq!(status("POST", begin, &[HOST, form]), 403);
    assert_eq!(status("POST", begin, &[HOST, form, "Origin: null\r\n"]), 403);
    assert!(!broker.node().services().batch_times.is_on());
    assert_eq!(status("POST", begin, &[HOST, "X-Ottla-Admin: 1\r\n"]), 200);
}

#[test]
fn an_address_that_other_machines_reach_needs_a_token() {
    let start = |more: &[(&str, &str)]| {
        let open = [("ottla.admin.listener", "0.0.0.0:0")];
        Broker::start_temporary(&[&open, more].concat())
    };
    let problem = start(&[]).err().unwrap().to_string();
    assert!(problem.contains("ottla.admin.token.file"), "{problem}");
    let broker = start(&[("ottla.admin.insecure", "true")]).unwrap();
    drop(broker);
    let directory = ottla_broker::broker::TemporaryDirectory::create().unwrap();
    let path = directory.path().join("token");
    let with_token = || start(&[("ottla.admin.token.file", path.to_str().unwrap())]);
    let problem = with_token().err().unwrap().to_string();
    assert!(problem.contains(path.to_str().unwrap()), "{problem}");
    std::fs::write(&path, "0123456789abcdef0123456789abcdef\n").unwrap();
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let broker = with_token().unwrap();
    let address = SocketAddr::from(([127, 0, 0, 1], broker.admin_address().unwrap().port()));
    let status = |headers: &[&str]| asked(address, "GET", "/metrics", headers).status;
    assert_eq!(status(&[HOST]), 401);
    let bearer = "Authorization: Bearer 0123456789abcdef0123456789abcdef\r\n";
    assert_eq!(status(&[HOST, bearer]), 200);
}

/// Before the first start of a container there is no place to put a token.
#[test]
fn the_broker_s_own_token_file_is_made_where_the_operator_names_it() {
    let directory = ottla_broker::broker::TemporaryDirectory::create().unwrap();
    let logs = directory.path().join("logs");
    let file = logs.join("ottla.admin.token");
    let broker = Broker::start_temporary(&[
        ("log.dirs", logs.to_str().unwrap()),
        ("ottla.admin.listener", "0.0.0.0:0"),
        ("ottla.admin.token.file", file.to_str().unwrap()),
    ])
    .unwrap();
    let token = std::fs::read_to_string(&file).unwrap();
    let address = SocketAddr::from(([127, 0, 0, 1], broker.admin_address().unwrap().port()));
    let status = |headers: &[&str]| asked(address, "GET", "/metrics", headers).status;
    assert_eq!(status(&[HOST]), 401);
    let bearer = format!("Authorization: Bearer {}\r\n", token.trim());
    assert_eq!(status(&[HOST, &bearer]), 200);
}

#[test]
fn an_admin_address_that_is_taken_is_named_with_the_setting() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let refused = Broker::start_temporary(&[("ottla.admin.listener", &address)]);
    let said = refused.err().unwrap().to_string();
    assert!(
        said.contains(&address) && said.contains("set ottla.admin.listener"),
        "{said}"
    );
}
