//! The image: read by skopeo, unpacked by umoci, run by bubblewrap with nothing but its own files,
//! as the user and with the entry point of its configuration.

use super::served::Served;
use super::{Place, round_trip};
use crate::dist::image;
use crate::interop::toolchain::{free_port, need, output_of, run_quietly};
use anyhow::{Context, Result, ensure};
use ottla_lab::ask::Door;
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Made by the broker in its log directory.
const TOKEN_FILE: &str = "ottla.admin.token";

const PAGE_BYTES_MAX: u64 = 1 << 20;

pub fn check(place: &Place) -> Result<String> {
    need("skopeo", &["--version"], "skopeo (Debian: skopeo)")?;
    need("umoci", &["--version"], "umoci (Debian: umoci)")?;
    need("bwrap", &["--version"], "bubblewrap (Debian: bubblewrap)")?;
    let home = place.home.join("image");
    fs::create_dir_all(&home)?;
    let package = place.package(&image::name())?;
    // What podman and Docker read as well.
    let mut copy = Command::new("skopeo");
    copy.arg("--insecure-policy")
        .arg("copy")
        .arg(format!("oci-archive:{}", package.display()))
        .arg(format!("oci:{}:check", home.join("layout").display()));
    run_quietly(&mut copy).context("skopeo copy")?;
    run_quietly(
        Command::new("skopeo")
            .arg("inspect")
            .arg(format!("docker-archive:{}", package.display())),
    )
    .context("skopeo inspect docker-archive")?;
    let mut unpack = Command::new("umoci");
    unpack
        .args(["unpack", "--rootless", "--image"])
        .arg(format!("{}:check", home.join("layout").display()))
        .arg(home.join("bundle"));
    run_quietly(&mut unpack).context("umoci unpack")?;
    let config = config(&home)?;
    run_image(place, &home, &config)?;
    Ok("skopeo, umoci, run alone in bubblewrap; librdkafka".to_owned())
}

/// The configuration as skopeo reads it.
fn config(home: &Path) -> Result<Value> {
    let mut inspect = Command::new("skopeo");
    inspect
        .args(["inspect", "--config"])
        .arg(format!("oci:{}:check", home.join("layout").display()));
    let text = output_of(&mut inspect).context("skopeo inspect")?;
    let image: Value = serde_json::from_str(&text)?;
    Ok(image["config"].clone())
}

/// The console through a published port, as docs/guides/install.md opens it: with the token that
/// the broker has made in its volume, and not without.
fn console(port: u16, token_file: &Path) -> Result<()> {
    let token = fs::read_to_string(token_file).context("the token is not in the volume")?;
    let door = |token| Door::new(format!("127.0.0.1:{port}")).with_token(token);
    let page = door(Some(token.trim().to_owned())).ask("GET", "/index.json", PAGE_BYTES_MAX)?;
    let page: Value = serde_json::from_str(&page).context("the console's overview")?;
    ensure!(page["version"].is_u64(), "not the console's overview: {page}");
    let refused = door(None).ask("GET", "/index.json", PAGE_BYTES_MAX).err();
    let refused = refused
        .context("the console is open without its token")?
        .to_string();
    ensure!(refused.contains("401"), "{refused}");
    Ok(())
}

fn run_image(place: &Place, home: &Path, config: &Value) -> Result<()> {
    let words = config["Entrypoint"]
        .as_array()
        .context("the image has no entry point")?;
    let words: Vec<&str> = words.iter().filter_map(Value::as_str).collect();
    let user = config["User"].as_str().context("the image has no user")?;
    let (user, group) = user.split_once(':').context("the image has no group")?;
    let data = home.join("data");
    fs::create_dir_all(&data)?;
    let port = free_port()?;
    let mut container = Command::new("bwrap");
    container
        .args([
            "--unshare-user",
            "--unshare-pid",
            "--as-pid-1",
            "--unshare-ipc",
            "--die-with-parent",
        ])
        .args(["--uid", user, "--gid", group, "--clearenv", "--ro-bind"])
        .arg(home.join("bundle/rootfs"))
        .arg("/");
    for volume in config["Volumes"]
        .as_object()
        .context("the image has no volume")?
        .keys()
    {
        container.arg("--bind").arg(&data).arg(volume);
    }
    ensure!(!words.is_empty(), "the entry point is empty");
    let console_port = free_port()?;
    let token_file = format!("{}/{TOKEN_FILE}", image::DATA);
    container.args(["--chdir", image::DATA]).args(words);
    for setting in [
        format!("listeners=PLAINTEXT://0.0.0.0:{port}"),
        format!("advertised.listeners=PLAINTEXT://localhost:{port}"),
        format!("ottla.admin.listener=0.0.0.0:{console_port}"),
        format!("ottla.admin.token.file={token_file}"),
    ] {
        container.args(["--override", &setting]);
    }
    let served = Served::start(&mut container, home)?;
    round_trip(place, &format!("localhost:{port}"))?;
    console(console_port, &data.join(TOKEN_FILE))?;
    served.stop_inside()?;
    ensure!(
        data.join("meta.properties").exists(),
        "the data is not in the volume"
    );
    Ok(())
}
