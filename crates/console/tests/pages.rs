//! Every page in every state: complete, escaped, small, and the same as JSON.

#![allow(clippy::unwrap_used, reason = "a failed step of a test is a failed test")]

use ottla_console::asset;
use ottla_console::draw::text::encoded;
use ottla_console::page::{Form, Query};
use ottla_console::reports::Reports;
use ottla_console::sample::{HOSTILE, LONG_VALUE_BYTES, Sample, State, site, site_of};
use ottla_console::site::{Answer, Ask, Site};
use ottla_lab::bench::sample;

const STATES: [State; 4] = [State::Loaded, State::Empty, State::Stock, State::Hostile];

const PATHS: [&str; 11] = [
    "/",
    "/topics",
    "/clients",
    "/groups",
    "/requests",
    "/tenants",
    "/config",
    "/access",
    "/transactions",
    "/bench",
    "/help/metrics",
];

/// The pages of one thing each.
fn named(state: State) -> Vec<String> {
    let name = |plain: &str| match state {
        State::Hostile => encoded(&format!("{plain}{HOSTILE}")),
        _ => plain.to_owned(),
    };
    [
        "topics/orders",
        "topics/orders/2",
        "messages/orders",
        "clients/orders-writer",
        "clients/billing-2",
        "groups/billing",
        "groups/invoices",
    ]
    .iter()
    .map(|path| {
        let (place, plain) = path.split_once('/').unwrap();
        let (plain, rest) = plain.split_once('/').unwrap_or((plain, ""));
        let path = format!("/{place}/{}/{rest}", name(plain));
        path.trim_end_matches('/').to_owned()
    })
    .collect()
}

fn all_paths(state: State) -> Vec<String> {
    let mut paths: Vec<String> = PATHS.iter().map(ToString::to_string).collect();
    if state != State::Empty {
        paths.extend(named(state));
    }
    paths
}

fn get(site: &Site, path: &str, query: &str) -> Answer {
    site.answer(Ask {
        path,
        query,
        wants_json: false,
    })
}

#[test]
fn every_page_of_every_state_is_a_whole_document_with_its_landmarks() {
    for state in STATES {
        let site = site(state, 0);
        for path in all_paths(state) {
            let answer = get(&site, &path, "");
            assert_eq!(
                (answer.status, answer.content_type),
                (200, "text/html; charset=utf-8"),
                "{state:?} {path}"
            );
            let html = answer.body;
            for part in [
                "<html lang=\"en\">",
                "<main id=\"main\"",
                "class=\"skip\" href=\"#main\"",
                "<h1>",
                "</html>",
            ] {
                assert!(html.contains(part), "{state:?} {path}: {part}");
            }
            assert_eq!(html.matches("<h1>").count(), 1, "{state:?} {path}");
            assert!(
                !html.contains("NaN") && !html.contains(">inf"),
                "{state:?} {path}"
            );
        }
    }
}

#[test]
fn no_block_is_empty_whatever_is_not_known() {
    for state in STATES {
        let site = site(state, 0);
        for path in all_paths(state) {
            let html = get(&site, &path, "").body;
            assert!(!html.contains("<div></div>\n</section>"), "{state:?} {path}");
        }
    }
}

#[test]
fn names_of_clients_are_text_on_every_page() {
    let site = site(State::Hostile, 0);
    for path in all_paths(State::Hostile) {
        let html = get(
            &site,
            &path,
            "q=%22%3E%3Cimg%20src%3Dx%3E&set=%3Cb%3E%3D1&linger.ms=%22%3E%3Cscript%3E",
        )
        .body;
        for needle in ["<img", "onerror=alert(1)>", "\u{202e}", "\u{1b}", "<b>=1"] {
            assert!(!html.contains(needle), "{path}: {needle}");
        }
        assert_eq!(
            html.matches("<script").count(),
            1,
            "{path}: only the console's own"
        );
        // The policy forbids both, so a page that had one would be broken.
        assert!(
            !html.contains(" style=\"") && !html.contains("javascript:"),
            "{path}"
        );
    }
}

#[test]
fn every_page_is_also_json_under_three_names() {
    for state in STATES {
        let site = site(state, 0);
        for path in all_paths(state) {
            let json = if path == "/" {
                String::from("/index.json")
            } else {
                format!("{path}.json")
            };
            let by_path = get(&site, &json, "");
            assert_eq!(
                (by_path.status, by_path.content_type),
                (200, "application/json"),
                "{state:?} {json}"
            );
            let value: serde_json::Value = serde_json::from_str(&by_path.body).unwrap();
            assert_eq!(value["version"], 1, "{state:?} {json}");
            let by_accept = site.answer(Ask {
                path: &path,
                query: "",
                wants_json: true,
            });
            assert_eq!(by_accept, by_path, "{state:?} {path}");
        }
    }
}

#[test]
fn what_is_not_there_is_not_found_in_both_forms() {
    let site = site(State::Loaded, 0);
    for path in [
        "/topics/none",
        "/clients/none",
        "/groups/none",
        "/nothing",
        "/topics/%ff",
        "/x/y/z",
        "//",
        "/topics/",
    ] {
        let found = get(&site, path, "");
        let expected = if matches!(path, "//" | "/topics/") {
            200
        } else {
            404
        };
        assert_eq!(found.status, expected, "{path}");
    }
    let json = get(&site, "/topics/none.json", "");
    assert_eq!((json.status, json.content_type), (404, "application/json"));
}

#[test]
fn the_ledger_s_printed_stages_add_up_to_its_printed_mean() {
    let html = get(&site(State::Loaded, 0), "/", "").body;
    let mut sums = 0;
    for part in html.split("<div class=\"eq\">").skip(1) {
        let part = part.split("</div>").next().unwrap();
        let own = part.split("<br>").next().unwrap();
        let plain: String = {
            let mut out = String::new();
            let mut is_tag = false;
            for character in own.chars() {
                match character {
                    '<' => is_tag = true,
                    '>' => is_tag = false,
                    other if !is_tag => out.push(other),
                    _ => {}
                }
            }
            out
        };
        let (left, right) = plain.split_once(" = ").unwrap();
        let hundredths = |text: &str| text.replace(['.', ','], "").parse::<u64>().unwrap();
        let parts: u64 = left
            .split(" + ")
            .map(|part| hundredths(part.rsplit(' ').next().unwrap()))
            .sum();
        assert_eq!(parts, hundredths(right.trim().trim_end_matches(" ms")), "{plain}");
        sums += 1;
    }
    assert!(sums >= 2, "{sums}");
    assert!(html.contains("<b class=\"r tot\">1.31</b>"));
}

#[test]
fn the_overview_says_what_is_the_case() {
    let json = |state| get(&site(state, 0), "/index.json", "").body;
    let summary = |state| {
        serde_json::from_str::<serde_json::Value>(&json(state)).unwrap()["summary"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    let loaded = summary(State::Loaded);
    assert!(loaded.starts_with("41,280 records/s come in and a produce request takes 1.31 ms, most of it waiting for the disk. 2 of 4 clients are slower than they need be."), "{loaded}");
    assert!(summary(State::Empty).starts_with("No records come in; 0 connections are open."));
    assert!(
        summary(State::Stock).starts_with("Apache Kafka does not tell where the time of its requests goes")
    );
}

fn json_of(state: State, path: &str) -> serde_json::Value {
    serde_json::from_str(&get(&site(state, 0), path, "").body).unwrap()
}

#[test]
fn a_group_says_how_late_it_is_where_that_goes_and_why() {
    let billing = json_of(State::Loaded, "/groups/billing.json");
    assert_eq!(
        billing["summary"],
        "The group is 90.1 s behind, 418,461 records. It falls behind by 4,643 records/s. The worst partition, orders 2, is with billing-2: Its application takes 212 µs for a record: 4,717 records/s, of 9,360 that come in."
    );
    assert_eq!(billing["lag_trend"]["direction"], "grows");
    assert_eq!(billing["lag_trend"]["records_per_second"], 4_643.0);
    assert_eq!(billing["lag_trend"]["seconds"], 60.0);
    assert_eq!(billing["group"]["members"][0]["holds"]["orders"][2], 2);
    let html = get(&site(State::Loaded, 0), "/groups/billing", "").body;
    for part in [
        "↗ grows by 4,643 records/s; 9,360 records/s came, 4,717 were read, over 60 s",
        "orders 0 to 2",
        "not at these rates",
    ] {
        assert!(html.contains(part), "{part}");
    }
    let list = get(&site(State::Loaded, 0), "/groups", "").body;
    assert!(list.contains("grows by 255 records/s"), "{list}");
}

/// Apache Kafka tells no times: the lag of the group had no word on why.
#[test]
fn what_is_not_known_of_a_lag_is_said_with_its_reason() {
    let billing = json_of(State::Stock, "/groups/billing.json");
    let summary = billing["summary"].as_str().unwrap();
    assert!(
        summary.starts_with("The group is 418,461 records behind. Since when: 2 of 3 partitions not known: Apache Kafka does not tell the time of the next record. It falls behind by 4,643 records/s."),
        "{summary}"
    );
    assert_eq!(billing["partitions_without_lag_seconds"], 2);
    assert!(billing["lag_seconds"].is_null());
    assert_eq!(billing["lag_seconds_known_max"], 0.0);
    assert_eq!(billing["group"]["offsets"][0]["time_unknown"], "not_told");
}

/// A console that has just been started.
#[test]
fn a_trend_that_is_not_known_yet_says_so_in_words() {
    let source = Sample {
        state: State::Loaded,
        more_topics: 0,
        reports: None,
    };
    let site = Site::unsampled(std::sync::Arc::new(source), Default::default());
    let body = |path: &str| get(&site, path, "").body;
    let billing: serde_json::Value = serde_json::from_str(&body("/groups/billing.json")).unwrap();
    assert!(billing["lag_trend"].is_null());
    assert_eq!(
        billing["lag_trend_untold"],
        "not known yet: the group has just been seen"
    );
    assert!(body("/groups").contains("not known yet"));
    assert!(body("/groups/billing").contains("Its trend is not known yet: the group has just been seen."));
}

#[test]
fn quotas_are_told_with_the_entity_that_they_were_set_for_and_how_long_they_throttled() {
    let html = get(&site(State::Loaded, 0), "/tenants", "").body;
    let (_, quotas) = html.split_once("id=\"quotas\"").unwrap();
    for part in [
        "producer_byte_rate",
        "50 MB/s",
        "48.7 MB/s",
        "client-id default",
        "14 times",
        "2.31 s",
        "200 %",
        "once",
        "Not shown: 3 quotas.",
    ] {
        assert!(quotas.contains(part), "{part}: {quotas}");
    }
    let none = get(&site(State::Empty, 0), "/tenants", "").body;
    assert!(none.contains("No quota applies to a tenant that has been seen."));
    let stock = get(&site(State::Stock, 0), "/tenants", "").body;
    assert!(
        stock.contains("Apache Kafka does not tell which quota applies"),
        "{stock}"
    );
    assert!(none.contains("None is set."), "{none}");
    let (_, set) = stock.split_once("id=\"set\"").unwrap();
    for part in [
        "client-id default",
        "50 MB/s",
        "user ana and client-id orders-writer",
        "200 %",
    ] {
        assert!(set.contains(part), "{part}: {set}");
    }
    let stock = json_of(State::Stock, "/tenants.json");
    assert_eq!(stock["quotas_set"][1]["limit"], 200.0, "{stock}");
}

#[test]
fn a_partition_tells_its_offsets_files_and_readers() {
    let two = json_of(State::Loaded, "/topics/orders/2.json");
    assert_eq!(
        two["summary"],
        "It holds 18,599,002 records in 3 GiB; the newest is 2 s old. Readers of committed records are held back by 9 offsets: a transaction is open. One group reads it, and is behind."
    );
    let partition = &two["partition"];
    assert_eq!(
        (&partition["index"], &partition["leader_epoch"]),
        (&2.into(), &7.into())
    );
    assert_eq!(partition["segments"][1]["base_offset"], 1_000);
    assert_eq!(partition["producers"][0]["transaction_from"], 18_599_993);
    assert_eq!(two["groups"][0]["client_id"], "billing-2");
    let html = get(&site(State::Loaded, 0), "/topics/orders/2", "").body;
    for part in [
        "payments-1",
        "17,000,000",
        "512 MiB",
        "Not shown: 12 producers.",
        "18,599,993",
        "2026-10-30 18:39:56",
    ] {
        assert!(html.contains(part), "{part}");
    }
    let topic = get(&site(State::Loaded, 0), "/topics/orders", "").body;
    assert!(topic.contains("href=\"/topics/orders/2\""), "{topic}");
}

#[test]
fn what_apache_kafka_does_not_tell_of_a_partition_is_said_in_its_place() {
    let two = json_of(State::Stock, "/topics/orders/2.json");
    let segments = &two["partition"]["segments"];
    let said = "Apache Kafka does not tell the segments of a partition; an Ottla measures it.";
    assert_eq!(segments, &serde_json::json!({"untold": said}));
    assert_eq!(two["partition"]["last_stable"], 18_599_993);
    let html = get(&site(State::Stock, 0), "/topics/orders/2", "").body;
    let (_, block) = html.split_once("id=\"segments\"").unwrap();
    assert!(block.contains(said), "{block}");
}

#[test]
fn a_partition_that_is_not_there_is_not_found_and_the_answer_says_what_is() {
    let site = site(State::Loaded, 0);
    let hostile = "There is no partition &lt;b&gt; of orders: it has 6 partitions, counted from 0.";
    for (path, why) in [
        (
            "/topics/orders/6",
            "There is no partition 6 of orders: it has 6 partitions, counted from 0.",
        ),
        ("/topics/orders/-1", "There is no partition -1 of orders"),
        (
            "/topics/orders/99999999999",
            "There is no partition 99999999999 of orders",
        ),
        ("/topics/orders/%3Cb%3E", hostile),
        ("/topics/orders/2/3", "There is no partition 2/3 of orders"),
        ("/topics/none/0", "There is no topic none."),
        (
            "/topics/%3Cimg%20src%3Dx%3E/0",
            "There is no topic &lt;img src=x&gt;.",
        ),
        ("/topics/orders/%ff", "There is no page here."),
    ] {
        let found = get(&site, path, "");
        assert_eq!(found.status, 404, "{path}");
        assert!(found.body.contains(why), "{path}: {}", found.body);
    }
    let json = get(&site, "/topics/orders/6.json", "");
    assert_eq!((json.status, json.content_type), (404, "application/json"));
    assert!(json.body.contains("it has 6 partitions"), "{}", json.body);
}

#[test]
fn a_topic_tells_its_requests_those_that_failed_and_its_skew() {
    let topic = json_of(State::Loaded, "/topics/orders.json");
    for (field, rate) in [
        ("produce_requests_per_second", 1_376.0),
        ("fetch_requests_per_second", 2_064.0),
        ("failed_produce_requests_per_second", 3.0),
        ("failed_fetch_requests_per_second", 0.0),
    ] {
        assert_eq!(topic[field], rate, "{field}");
    }
    let html = get(&site(State::Loaded, 0), "/topics/orders", "").body;
    assert!(html.contains("1,376/s, 3/s of them failed"), "{html}");
    assert!(
        html.contains("<dt>skew</dt>") && html.contains("<dd>2.4</dd>"),
        "{html}"
    );
    let list = json_of(State::Loaded, "/topics.json");
    let orders = &list["topics"][0];
    assert_eq!(
        (
            &orders["requests_per_second"],
            &orders["failed_requests_per_second"]
        ),
        (&3_440.0.into(), &3.0.into())
    );
    assert_eq!(orders["topic"]["skew"], 2.4);
    let stock = get(&site(State::Stock, 0), "/topics/orders", "").body;
    assert!(
        stock.contains("Apache Kafka does not tell what goes through a topic"),
        "{stock}"
    );
}

#[test]
fn pages_stay_small_however_many_topics_there_are() {
    let site = site(State::Loaded, 40_000);
    let list = get(&site, "/topics", "").body;
    assert!(list.len() < 120_000, "{}", list.len());
    assert_eq!(list.matches("<tr").count(), 101);
    assert!(list.contains("1 to 100 of 40,001 topics"));
    let first = get(&site, "/", "").body;
    let sent = asset::gzip(first.as_bytes()).len()
        + asset::STYLE.gzip().len()
        + asset::SCRIPT.gzip().len()
        + asset::ICON.gzip().len();
    assert!(sent <= 40 * 1024, "{sent}");
    assert_eq!(
        first.matches("/assets/").count(),
        3,
        "four requests with the page itself"
    );
}

#[test]
fn what_if_is_asked_by_address_and_refused_in_words() {
    let site = site(State::Loaded, 0);
    let ask = |query: &str| get(&site, "/api/v1/clients/orders-writer/predict", query);
    let unknown = ask("set=lingr.ms%3D5");
    assert_eq!(unknown.status, 400);
    assert!(
        unknown.body.contains("linger.ms may be meant"),
        "{}",
        unknown.body
    );
    assert_eq!(ask("").status, 400);
    assert_eq!(
        get(&site, "/api/v1/clients/none/predict", "set=linger.ms=5").status,
        404
    );
}

/// `/tenants` led to pages of clients for users and addresses, and `/help/metrics` of a console
/// without metrics to `/metrics`.
#[test]
fn every_link_of_every_page_leads_to_a_page() {
    for state in STATES {
        let site = site(state, 0);
        for path in all_paths(state) {
            let html = get(&site, &path, "").body;
            let links = html.split("href=\"/").skip(1);
            let unescaped =
                |rest: &str| format!("/{}", rest.split('"').next().unwrap().replace("&amp;", "&"));
            for link in links.map(unescaped) {
                let (to, query) = link.split_once('?').unwrap_or((&link, ""));
                let is_elsewhere = to.starts_with("/assets/") || (to == "/metrics" && state != State::Stock);
                if site.field(to, query).is_some_and(|field| field.is_ok()) {
                    continue;
                }
                if !is_elsewhere {
                    assert_eq!(get(&site, to, query).status, 200, "{state:?} {path}: {link}");
                }
            }
        }
    }
}

#[test]
fn a_field_that_is_cut_leads_to_the_whole_of_it() {
    let site = site(State::Loaded, 0);
    let html = get(&site, "/messages/orders", "").body;
    let link = "/messages/orders/value?partition=0&amp;offset=40";
    assert!(html.contains(&format!("href=\"{link}\" download=\"\"")), "{html}");
    assert!(!html.contains("offset=41"), "a short one has no file");
    let field = |path: &str, query: &str| site.field(path, query).unwrap();
    let whole = field("/messages/orders/value", "partition=0&offset=40").unwrap();
    assert_eq!(whole.file_name, "orders-0-40.value");
    assert_eq!(whole.bytes, [0xf0; LONG_VALUE_BYTES]);
    assert_eq!(field("/messages/orders/key", "offset=41").unwrap().bytes, b"key");
    for (path, query, status, why) in [
        ("/messages/orders/value", "", 400, "names the record"),
        ("/messages/orders/value", "offset=x", 400, "offset wants a number"),
        (
            "/messages/orders/value",
            "offset=39",
            404,
            "no record at this offset",
        ),
        ("/messages/orders/header", "offset=41", 404, "a key and a value"),
    ] {
        let refused = field(path, query).unwrap_err();
        assert_eq!(refused.status, status, "{path} {query}");
        assert!(refused.body.contains(why), "{}", refused.body);
    }
    let name = encoded("a/../\"\r\nb");
    let hostile = field(&format!("/messages/{name}/value"), "offset=40").unwrap();
    assert_eq!(hostile.file_name, "a..b-0-40.value");
    assert!(site.field("/messages/orders", "").is_none() && site.field("/topics/orders/2", "").is_none());
}

#[test]
fn a_partition_is_followed_with_the_newest_record_first() {
    let site = site(State::Loaded, 0);
    let html = get(&site, "/messages/orders", "follow=1&key=k").body;
    let (newest, older) = (html.find("data-key=\"o41\""), html.find("data-key=\"o40\""));
    assert!(newest.is_some() && newest < older, "{html}");
    assert!(html.contains("Records with the key “k” as they come"), "{html}");
    assert!(
        html.contains("href=\"?partition=0&amp;key=k\">Stop following"),
        "{html}"
    );
    let json: serde_json::Value =
        serde_json::from_str(&get(&site, "/messages/orders.json", "follow=1").body).unwrap();
    assert_eq!(
        (&json["entries"][1]["offset"], &json["skipped"]),
        (&41.into(), &0.into())
    );
}

/// Every page was made twice, and its JSON, which has all rows, was thrown away.
#[test]
fn the_json_of_a_page_is_made_only_for_those_who_ask_for_it() {
    let site = site(State::Loaded, 40_000);
    for path in [
        "/",
        "/topics",
        "/clients",
        "/groups",
        "/tenants",
        "/topics/orders",
    ] {
        let page = |form| site.page(path, &Query::default(), form).unwrap();
        assert!(page(Form::Html).json.is_empty(), "{path}");
        let json: serde_json::Value = serde_json::from_str(&page(Form::Json).json).unwrap();
        assert_eq!(json["version"], 1, "{path}");
    }
    let bytes: usize = ottla_console::site::blocks(&site, "/topics")
        .iter()
        .map(|block| block.html.as_str().len())
        .sum();
    assert!(bytes < 120_000, "{bytes} bytes for a viewer of 40,000 topics");
}

/// A site with two reports whose texts try to break out, in a directory of the test's own.
fn site_with_reports() -> (Site, std::path::PathBuf) {
    let directory = std::env::temp_dir().join(format!("ottla-console-reports-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    for (name, started_at) in [("first", 1_793_380_000), ("second", 1_793_385_598)] {
        let mut report = sample::report();
        report.manifest.started_at = started_at;
        let json = serde_json::to_vec(&report).unwrap();
        std::fs::write(directory.join(format!("{name}.json")), json).unwrap();
    }
    let source = Sample {
        state: State::Stock,
        more_topics: 0,
        reports: Some(std::sync::Arc::new(Reports::of(&directory))),
    };
    (site_of(source), directory)
}

#[test]
fn reports_are_listed_shown_in_a_frame_and_compared() {
    let (site, directory) = site_with_reports();
    let json = |path: &str, query: &str| -> serde_json::Value {
        let answer = get(&site, path, query);
        assert_eq!(
            (answer.status, answer.content_type),
            (200, "application/json"),
            "{path}"
        );
        serde_json::from_str(&answer.body).unwrap()
    };
    let list = json("/bench.json", "");
    assert_eq!(list["reports"][0]["name"], "second");
    assert_eq!(list["reports"][1]["verdict"], "INVALID");
    assert_eq!((&list["version"], &list["cut"]), (&1.into(), &0.into()));
    let compared = json("/bench.json", "a=first&b=second");
    assert_eq!(compared["comparison"]["rows"][0]["ratio"], 1.0);
    let missing = json("/bench.json", "a=first&b=../first");
    assert_eq!(missing["untold"], "There is no report ../first.");

    let html = get(&site, "/bench", "a=first&b=second").body;
    assert!(html.contains("<option value=\"first\" selected=\"\">"), "{html}");
    assert!(html.contains("throughput, records/s"), "{html}");
    let list = get(&site, "/bench", "").body;
    assert!(list.contains("2026-10-30 18:39:58"), "{list}");
    let one = get(&site, "/bench/first", "").body;
    assert!(
        one.contains("src=\"/reports/first\"") && one.contains("sandbox=\"\""),
        "{one}"
    );
    for page in [&html, &one] {
        assert!(
            !page.contains("<img") && page.matches("<script").count() == 1,
            "{page}"
        );
    }
    let framed = get(&site, "/reports/first", "");
    assert!(framed.is_framed && framed.body.contains("id=\"report\""));
    assert!(!framed.body.contains("<img"));
    assert_eq!(json("/reports/first.json", "")["schema"], "ottla.bench.report/1");
    for path in [
        "/reports/none",
        "/bench/none",
        "/reports/..%2Ffirst",
        "/reports/%ff",
    ] {
        assert_eq!(get(&site, path, "").status, 404, "{path}");
    }
    std::fs::remove_dir_all(directory).unwrap();
}
