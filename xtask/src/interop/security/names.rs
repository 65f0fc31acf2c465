//! Principals of client certificates with mapping rules: for every name of a list and every set of
//! rules, what Kafka's own mapper says, seen through ACLs by a client with that certificate.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::broker::{add_listeners, escaped};
use super::certificates::Authority;
use crate::interop::clients::{Client, Clients};
use crate::interop::server::{Programs, Site, Target};
use crate::interop::table::Table;
use crate::interop::toolchain::{self, run_quietly};

/// Subjects as `openssl req -subj` takes them, from the first part to the last, and the kinds of
/// string that their values are written as.
const SUBJECTS: &[(&str, &str)] = &[
    ("/CN=alice", UTF8),
    ("/CN=Duke/OU=ServiceUsers/O=Org/L=Town/ST=State/C=US", UTF8),
    ("/C=US/ST=State/L=Town/O=Org/OU=ServiceUsers/CN=Duke", UTF8),
    ("/C=US/ST=CA/L=Palo Alto/O=Acme/OU=Admin/CN=adminUser", UTF8),
    ("/C=DE/ST=Y/L=X/O=O, Inc/OU=a\\+b/CN=alice", UTF8),
    ("/CN=a+OU=b", UTF8),
    ("/OU=b+CN=a", UTF8),
    ("/C=DE/CN=a+OU=b/O=x", UTF8),
    ("/CN=b+UID=7+OU=z", UTF8),
    ("/DC=com/DC=example/CN=host", UTF8),
    ("/UID=42/CN=u", UTF8),
    ("/street=Main 1/CN=s", UTF8),
    ("/emailAddress=a@b.c/CN=mail", UTF8),
    ("/serialNumber=123/CN=sn", UTF8),
    ("/title=Dr/CN=t", UTF8),
    ("/GN=G/SN=S/CN=gn", UTF8),
    ("/dnQualifier=q/CN=dq", UTF8),
    ("/1.3.6.1.4.1.99999.1=custom/CN=oid", UTF8),
    ("/CN=käse", UTF8),
    ("/O=日本/CN=Ωmega", UTF8),
    ("/CN=😀", UTF8),
    ("/CN=ΟΔΟΣ", UTF8),
    ("/CN=straße", UTF8),
    ("/CN=İstanbul", UTF8),
    ("/CN= leading", UTF8),
    ("/CN=trailing ", UTF8),
    ("/CN=two  blanks", UTF8),
    ("/CN=#hash", UTF8),
    ("/CN=a#b", UTF8),
    ("/CN=q\"uote", UTF8),
    ("/CN=semi;colon", UTF8),
    ("/CN=less<more>", UTF8),
    ("/CN=back\\\\slash", UTF8),
    ("/CN=equals=sign", UTF8),
    ("/CN=sl\\/ash", UTF8),
    ("/CN=comma,comma", UTF8),
    ("/CN=plus\\+plus", UTF8),
    ("/OU=only", UTF8),
    ("/CN=UPPER/OU=Mixed Case", UTF8),
    ("/OU=a/OU=b/OU=c/CN=many", UTF8),
    ("/CN=first/CN=second", UTF8),
    ("/CN=dollar$1", UTF8),
    ("/CN=printable", PRINTABLE),
    ("/CN=käse/O=wide", BMP),
    ("/CN=käse/O=old", TELETEX),
    ("/CN=käse/O=widest", UNIVERSAL),
];

/// OpenSSL's `string_mask`.
const UTF8: &str = "utf8only";
const PRINTABLE: &str = "MASK:0x2";
const TELETEX: &str = "MASK:0x4";
const UNIVERSAL: &str = "MASK:0x100";
const BMP: &str = "MASK:0x800";

/// One set of rules for each listener.
const RULES: [&str; 4] = [
    "DEFAULT",
    // The example in Apache Kafka's documentation.
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/,\
     RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L,\
     RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/L,DEFAULT",
    // Without DEFAULT: some names have none. Both foldings, which change letters beyond ASCII.
    "RULE:^CN=([^,+]*)$/$1/U,RULE:^.*CN=([^,+]*),.*$/$1/L",
    // Escapes in patterns and in what replaces them.
    r"RULE:^CN=(.*)\/(.*)$/$2\/$1/,RULE:^CN=(.*)\\(.)(.*)$/$3\$$1/,RULE:^.*\+.*$/many/,DEFAULT",
];

/// Runs everything against one broker.
pub fn run(table: &mut Table, programs: &Programs, clients: &Clients, target: Target) -> Result<()> {
    let folder = toolchain::target_directory().join("data/names-certificates");
    fs::create_dir_all(&folder)?;
    let authority = Authority::create(&folder, "authority")?;
    let own = authority.sign("broker", &["localhost"], |_| {})?;
    let trusted = sign_all(&folder)?;
    let (site, listeners) = site(&folder, &own, &trusted)?;
    let server = site.start(programs, target)?;
    let bootstrap = site.bootstrap();
    let arguments = [
        "names",
        &bootstrap,
        text(&authority.file)?,
        text(&listeners)?,
        text(&folder)?,
    ];
    let outcomes = clients.run(
        &programs.kafka,
        Client::Java,
        &arguments,
        Duration::from_secs(400),
    )?;
    let all = SUBJECTS.len() * RULES.len();
    let complete = match outcomes.len() {
        count if count >= all => Ok(()),
        count => Err(format!("only {count} of {all} names were tried")),
    };
    super::add(table, &format!("names: all of {all}"), complete);
    let failures = outcomes.into_iter().filter(|(_, outcome)| outcome.is_err());
    failures.for_each(|(name, outcome)| super::add(table, &format!("names: {name}"), outcome));
    server.stop()
}

/// A directory with one listener for each set of rules, and the file that tells which is where.
fn site(folder: &Path, own: &Path, trusted: &Path) -> Result<(Site, PathBuf)> {
    let mut settings = vec![
        (
            "authorizer.class.name".to_owned(),
            "org.apache.kafka.metadata.authorizer.StandardAuthorizer".to_owned(),
        ),
        ("super.users".to_owned(), "User:ANONYMOUS".to_owned()),
    ];
    let (mut ports, mut lines) = (Vec::new(), String::new());
    for (number, rules) in RULES.iter().enumerate() {
        let port = toolchain::free_port()?;
        let mut put = |key: &str, value: &str| {
            settings.push((format!("listener.name.rules{number}.{key}"), value.to_owned()));
        };
        put("ssl.keystore.type", "PEM");
        put("ssl.keystore.location", text(own)?);
        put("ssl.truststore.type", "PEM");
        put("ssl.truststore.location", text(trusted)?);
        put("ssl.client.auth", "required");
        put("ssl.principal.mapping.rules", &escaped(rules));
        ports.push((format!("RULES{number}"), port));
        lines += &format!("localhost:{port}\t{rules}\n");
    }
    let settings: Vec<(&str, &str)> = settings.iter().map(|(key, value)| (&**key, &**value)).collect();
    let site = Site::create("names", &settings)?;
    add_listeners(
        &site,
        ports.iter().map(|(name, port)| (name.as_str(), "SSL", *port)),
    )?;
    let listeners = folder.join("listeners");
    fs::write(&listeners, lines)?;
    Ok((site, listeners))
}

/// Makes an authority and a key store for each subject, `0.pem` and so on; returns the authority's
/// certificate.
fn sign_all(folder: &Path) -> Result<PathBuf> {
    toolchain::need("openssl", &["version"], "OpenSSL 3 (Debian: openssl)")?;
    let (certificate, key) = (folder.join("subjects.pem"), folder.join("subjects.key"));
    let authority = [
        "-subj",
        "/CN=subjects",
        "-addext",
        "basicConstraints=critical,CA:TRUE",
    ];
    request(folder, UTF8, &key, &certificate, &authority)?;
    // An extension makes it a certificate of version 3; Ottla refuses older ones.
    let by = [
        "-CA",
        text(&certificate)?,
        "-CAkey",
        text(&key)?,
        "-addext",
        "subjectAltName=DNS:client",
    ];
    for (number, (subject, strings)) in SUBJECTS.iter().enumerate() {
        let [key, one] = ["key", "one"].map(|name| folder.join(name));
        request(
            folder,
            strings,
            &key,
            &one,
            &[&["-subj", subject], &by[..]].concat(),
        )
        .with_context(|| format!("a certificate for {subject}"))?;
        let store = fs::read_to_string(&key)? + &fs::read_to_string(&one)?;
        fs::write(folder.join(format!("{number}.pem")), store)?;
    }
    let beyond = folder.join(format!("{}.pem", SUBJECTS.len()));
    ensure!(!beyond.exists(), "{} is of an earlier list", beyond.display());
    Ok(certificate)
}

fn request(folder: &Path, strings: &str, key: &Path, certificate: &Path, more: &[&str]) -> Result<()> {
    let config = folder.join("openssl.cnf");
    fs::write(
        &config,
        format!("[req]\ndistinguished_name=dn\nstring_mask={strings}\n[dn]\n"),
    )?;
    let mut command = Command::new("openssl");
    command
        .args(["req", "-x509", "-utf8", "-nodes", "-days", "30", "-newkey", "ec"])
        .args(["-pkeyopt", "ec_paramgen_curve:P-256", "-config"])
        .arg(config)
        .arg("-keyout")
        .arg(key)
        .arg("-out")
        .arg(certificate);
    run_quietly(command.args(more)).context("openssl req")
}

fn text(path: &Path) -> Result<&str> {
    path.to_str().context("a path in UTF-8")
}
