//! `/bench`: where reports of measurements come from.

use serde_json::json;

use super::{Page, View};
use crate::draw::block::{block, head};
use crate::draw::text::{plain, text};

pub fn page(view: &View<'_>) -> Page {
    let lead = [text(
        "This page lists no reports: a broker does not measure itself while it serves.",
    )];
    let address = view.source.identity().address;
    let how = block(
        "how",
        "Make a report",
        "A report is one HTML file; it opens without this console.",
        |page| {
            let commands = format!(
                "ottla bench list\nottla bench run NAME --bootstrap-server {address} --output ottla-bench"
            );
            page.leaf("pre", &[("tabindex", &"0")], commands);
        },
    );
    Page {
        title: String::from("Bench"),
        place: "/bench",
        json: view.document(|| json!({"summary": plain(&lead), "reports": []})),
        blocks: vec![head("Bench", "", &lead, &[]), how],
    }
}
