//! `cargo xtask bench-report [FILE...]`: opens reports of `ottla bench` in a real browser and
//! checks that they are rendered.
//!
//! Without files it opens a made-up report with hostile texts. Every page is opened in light and
//! dark, in a desktop's and a phone's width.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use ottla_lab::bench::{html, sample};
use ottla_lab::report::Report;
use serde_json::Value;

/// Names of the program in Debian, its derivatives and Chrome's own packages.
const BROWSERS: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "chrome"];
/// Timeout of one page, which takes about a second; a browser may hang.
const WITHIN: Duration = Duration::from_secs(120);
/// The content security policy of `html`; in a copy it also allows the probe below, and nothing
/// else differs.
const POLICY: &str = "default-src &#39;none&#39;;";
const POLICY_OF_COPY: &str = "default-src &#39;none&#39;; script-src &#39;unsafe-inline&#39;;";

/// Opens all folded parts and records what the browser rendered.
const PROBE: &str = r"<script>
let refused = 0;
document.addEventListener('securitypolicyviolation', () => refused++);
for (const details of document.querySelectorAll('details')) details.open = true;
const charts = [...document.querySelectorAll('figure.chart')].map(figure => {
  const svg = figure.querySelector(':scope > svg');
  const box = svg.getBoundingClientRect();
  const lines = [...svg.querySelectorAll('path.line')].filter(line => line.getTotalLength() > 0
    || svg.querySelector('circle.mark'));
  const areas = [...svg.querySelectorAll('rect.area')].filter(area => area.getBoundingClientRect().width > 0);
  const drawn = lines[0] || areas[0];
  const style = drawn && getComputedStyle(drawn);
  const outside = [...svg.querySelectorAll('path, rect, circle')].filter(part => {
    const inner = part.getBoundingClientRect();
    return inner.left < box.left - 1 || inner.right > box.right + 1 || inner.top < box.top - 1 || inner.bottom > box.bottom + 1;
  });
  return { title: figure.querySelector('h4').textContent, width: box.width, height: box.height, outside: outside.length,
    drawn: lines.length + areas.length, texts: svg.querySelectorAll('text').length,
    colour: style ? (lines.length ? style.stroke : style.fill) : '' };
});
const probe = { charts, refused, title: document.title, dark: matchMedia('(prefers-color-scheme: dark)').matches,
  ground: getComputedStyle(document.body).backgroundColor, text: getComputedStyle(document.body).color,
  overflow: document.documentElement.scrollWidth - document.documentElement.clientWidth,
  requests: performance.getEntriesByType('resource').map(entry => entry.name),
  scripts: document.scripts.length, images: document.images.length,
  verdict: document.querySelector('.verdict strong').textContent, rows: document.querySelectorAll('#points tbody tr').length };
const out = document.createElement('pre');
out.id = 'probe';
out.textContent = btoa(unescape(encodeURIComponent(JSON.stringify(probe))));
document.body.append(out);
</script></body>";

#[derive(Clone, Copy, Debug)]
struct View {
    is_dark: bool,
    width: u32,
}

const VIEWS: [View; 4] = [
    View {
        is_dark: false,
        width: 1_280,
    },
    View {
        is_dark: true,
        width: 1_280,
    },
    View {
        is_dark: false,
        width: 500,
    },
    View {
        is_dark: true,
        width: 500,
    },
];

pub fn run(arguments: &[String]) -> Result<()> {
    let browser = browser()?;
    let folder = std::env::temp_dir().join(format!("ottla-bench-report-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    let outcome = check_all(&browser, &folder, arguments);
    fs::remove_dir_all(&folder)?;
    outcome
}

fn check_all(browser: &Path, folder: &Path, arguments: &[String]) -> Result<()> {
    if arguments.is_empty() {
        return check(browser, folder, "the made-up report", &sample::report());
    }
    for path in arguments {
        let report = Report::read(Path::new(path))?;
        check(browser, folder, path, &report)?;
    }
    Ok(())
}

fn browser() -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let candidates = BROWSERS.iter().flat_map(|name| {
        std::env::split_paths(&path)
            .map(|folder| folder.join(name))
            .collect::<Vec<_>>()
    });
    candidates
        .into_iter()
        .find(|candidate| candidate.is_file())
        .context("missing browser: chromium (apt-get install --no-install-recommends chromium)")
}

fn check(browser: &Path, folder: &Path, name: &str, report: &Report) -> Result<()> {
    let page = html::render(report);
    ensure!(page.contains(POLICY), "{name}: the page allows requests");
    let copy = page.replacen(POLICY, POLICY_OF_COPY, 1);
    let (before, after) = copy.rsplit_once("</body>").context("a page ends with its body")?;
    let path = folder.join("report.html");
    fs::write(&path, format!("{before}{PROBE}{after}"))?;
    let mut colours = Vec::new();
    for view in VIEWS {
        let seen = open(browser, folder, &path, view).with_context(|| format!("{name}, {view:?}"))?;
        let charts = judge(report, &seen, view).with_context(|| format!("{name}, {view:?}"))?;
        let paint = |key: &str| seen[key].as_str().unwrap_or_default().to_owned();
        colours.push((view.is_dark, paint("ground"), paint("text"), charts));
    }
    for dark in colours.iter().filter(|seen| seen.0) {
        for light in colours.iter().filter(|seen| !seen.0) {
            ensure!(
                dark.1 != light.1 && dark.2 != light.2,
                "{name}: dark looks like light"
            );
            let same = dark
                .3
                .iter()
                .zip(&light.3)
                .filter(|(dark, light)| dark == light)
                .count();
            ensure!(
                same == 0,
                "{name}: {same} charts have the same colours in dark and light"
            );
        }
    }
    let count = colours.first().map_or(0, |seen| seen.3.len());
    println!("{name}: {count} charts, in light and dark, wide and narrow; no request");
    Ok(())
}

/// Returns the findings of the probe in the page.
fn open(browser: &Path, folder: &Path, page: &Path, view: View) -> Result<Value> {
    let mut command = Command::new(browser);
    command.args([
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--disable-background-networking",
        "--disable-component-update",
        "--no-first-run",
        "--hide-scrollbars",
        "--dump-dom",
    ]);
    command.arg(format!("--window-size={},1000", view.width));
    // 0 is dark, 1 is light: `PreferredColorScheme` of Chromium's settings.
    command.arg(format!(
        "--blink-settings=preferredColorScheme={}",
        u8::from(!view.is_dark)
    ));
    command.arg(format!("--user-data-dir={}", folder.join("profile").display()));
    command.arg(format!("file://{}", page.display()));
    // To a file: a full pipe without a reader would block the browser.
    let dom_path = folder.join("dom.html");
    let mut child = command
        .stdout(fs::File::create(&dom_path)?)
        .stderr(Stdio::null())
        .spawn()
        .with_context(|| browser.display().to_string())?;
    let begin = Instant::now();
    while child.try_wait()?.is_none() {
        if begin.elapsed() > WITHIN {
            child.kill()?;
            child.wait()?;
            bail!("the browser did not end within {} s", WITHIN.as_secs());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let dom = fs::read_to_string(&dom_path)?;
    let (_, rest) = dom
        .rsplit_once("<pre id=\"probe\">")
        .context("the browser showed nothing")?;
    let (text, _) = rest.split_once("</pre>").context("the browser's page was cut")?;
    Ok(serde_json::from_slice(&base64(text)?)?)
}

/// Decodes the output of `btoa`.
fn base64(text: &str) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let (mut bits, mut count) = (0_u32, 0);
    for letter in text.bytes().filter(|letter| *letter != b'=') {
        let value = match letter {
            b'A'..=b'Z' => letter - b'A',
            b'a'..=b'z' => letter - b'a' + 26,
            b'0'..=b'9' => letter - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => bail!("the probe's text is damaged"),
        };
        bits = bits << 6 | u32::from(value);
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count & 0xff) as u8);
        }
    }
    Ok(bytes)
}

/// Checks the findings, failing at the first violation; returns the colours of the charts.
fn judge(report: &Report, seen: &Value, view: View) -> Result<Vec<String>> {
    ensure!(
        seen["dark"] == view.is_dark,
        "the browser did not take the colour scheme"
    );
    ensure!(
        seen["refused"] == 0,
        "the page tried to load what its policy forbids"
    );
    let requests = seen["requests"].as_array().context("no list of requests")?;
    ensure!(requests.is_empty(), "the page made requests: {requests:?}");
    // The page's own JSON, and the probe.
    ensure!(
        seen["scripts"] == 2 && seen["images"] == 0,
        "a text of the report became an element"
    );
    let title = format!("{}: {}", report.scenario.name, report.verdict.word());
    ensure!(seen["title"] == title.as_str(), "the title is {}", seen["title"]);
    ensure!(
        seen["verdict"] == report.verdict.word(),
        "the verdict is {}",
        seen["verdict"]
    );
    ensure!(seen["rows"].as_u64().unwrap_or(0) > 0, "the table has no rows");
    let overflow = seen["overflow"].as_f64().unwrap_or(f64::MAX);
    ensure!(
        overflow < 1.0,
        "the page is {overflow} pixels too wide for {}",
        view.width
    );
    let charts = seen["charts"].as_array().context("no list of charts")?;
    ensure!(!charts.is_empty(), "there is no chart");
    let mut colours = Vec::new();
    for chart in charts {
        let title = &chart["title"];
        let size = |key: &str| chart[key].as_f64().unwrap_or(0.0);
        ensure!(
            size("width") > 200.0 && size("height") > 50.0,
            "{title} has no size: {chart}"
        );
        ensure!(size("drawn") > 0.0, "{title} draws nothing");
        ensure!(size("outside") == 0.0, "{title} draws outside of itself: {chart}");
        ensure!(size("texts") > 4.0, "{title} has no axes");
        colours.push(chart["colour"].as_str().unwrap_or_default().to_owned());
    }
    for wanted in wanted_charts(report) {
        let is_there = charts.iter().any(|chart| {
            chart["title"]
                .as_str()
                .is_some_and(|title| title.starts_with(wanted))
        });
        ensure!(is_there, "the chart {wanted:?} is missing");
    }
    Ok(colours)
}

/// Returns the charts that a report with these measurements must have.
fn wanted_charts(report: &Report) -> Vec<&'static str> {
    let measurements = || {
        report
            .points
            .iter()
            .flat_map(|point| &point.on)
            .flat_map(|on| &on.measurements)
    };
    let mut wanted = Vec::new();
    if measurements().any(|measurement| measurement.timeline.iter().any(|second| second.acknowledged > 0)) {
        wanted.push("Rates over time");
    }
    if measurements().any(|measurement| {
        measurement
            .timeline
            .iter()
            .any(|second| second.latency_p99_ms > 0.0)
    }) {
        wanted.push("Latency over time");
    }
    if measurements().any(|measurement| measurement.producers.iter().any(|group| group.service.is_some())) {
        wanted.extend(["Histogram", "Percentiles"]);
    }
    if measurements().any(|measurement| measurement.timeline.iter().any(|second| !second.cpu.is_empty())) {
        wanted.push("Processors");
    }
    let has_stages = |stages: &ottla_lab::report::Stages| {
        stages
            .slowest
            .iter()
            .any(|means| means.means_ms.iter().any(|mean| *mean > 0.0))
    };
    if measurements().any(|measurement| measurement.stages.as_ref().is_some_and(has_stages)) {
        wanted.push("Stages of the slowest records");
    }
    wanted
}
