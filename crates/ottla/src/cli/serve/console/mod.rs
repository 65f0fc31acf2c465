//! The console of a broker in this process: what the broker and the doctor know, as the console's
//! plain values.

mod counts;
mod topics;
mod partition;
mod groups;
mod settings;
mod access;
mod records;

use std::sync::Arc;

use ottla_broker::admin::tenants;
use ottla_broker::{AdminView, Console};
use ottla_console::server;
use ottla_console::site::Site;
use ottla_console::source::{
    Access, AccessAnswer, AccessQuestion, BrokerSetting, Counts, Groups, Identity, OpenTransaction,
    PartitionDetail, Peek, Peeked, SetQuota, SlowRequest, Source, Subscription, Told, Topic, TopicDetail,
};
use ottla_console::trend::Progress;
use ottla_lab::doctor::Snapshot;
use ottla_lab::doctor::diagnosis::Examination;
use ottla_lab::doctor::history::Collector;
use ottla_lab::doctor::promises::document::Promises;

use super::doctor::now_ms;

/// Returns what makes the console once the broker runs.
pub fn console(collector: Arc<Collector>) -> Console {
    Box::new(move |view: &AdminView| {
        let source = InProcess {
            view: view.clone(),
            collector,
        };
        let site = Site::start(Arc::new(source))
            .expect("a thread can be started: the broker has just started a dozen");
        server::router(site)
    })
}

/// The broker of this process.
struct InProcess {
    view: AdminView,
    collector: Arc<Collector>,
}

impl Source for InProcess {
    fn counts(&self) -> Told<Counts> {
        Ok(counts::read(&self.view))
    }

    fn identity(&self) -> Identity {
        let node = &self.view.node;
        let listener = node.config().advertised_listeners.first();
        Identity {
            software: format!("Ottla {}", env!("OTTLA_VERSION")),
            address: listener.map_or_else(String::new, |listener| {
                format!("{}:{}", listener.host, listener.port)
            }),
            cluster_id: node.cluster_id().to_owned(),
            serves_metrics: true,
        }
    }

    fn examination(&self) -> Told<Examination> {
        let mut examination = self.collector.examine(now_ms());
        examination.sort();
        Ok(examination)
    }

    fn snapshots(&self) -> Told<Vec<Snapshot>> {
        Ok(self.collector.snapshots(now_ms()))
    }

    fn promises(&self) -> Told<Promises> {
        Ok(self.collector.promises(now_ms()))
    }

    fn topics(&self) -> Told<Arc<Vec<Topic>>> {
        Ok(Arc::new(topics::list(&self.view)))
    }

    fn topic(&self, name: &str) -> Told<Option<TopicDetail>> {
        Ok(topics::one(&self.view, name))
    }

    fn partition(&self, topic: &str, index: i32) -> Told<Option<PartitionDetail>> {
        Ok(partition::one(&self.view, topic, index))
    }

    fn groups(&self) -> Told<Arc<Groups>> {
        Ok(Arc::new(groups::list(&self.view)))
    }

    fn progress(&self) -> Told<Progress> {
        Ok(groups::progress(&self.view))
    }

    fn slow_requests(&self) -> Told<Vec<SlowRequest>> {
        Ok(counts::slow_requests(&self.view))
    }

    fn tenants(&self) -> Told<String> {
        let view = &self.view;
        Ok(tenants::render(&view.tenants, &view.node.quotas))
    }

    fn quotas(&self) -> Told<Vec<SetQuota>> {
        Ok(settings::quotas(&self.view))
    }

    fn settings(&self) -> Told<Vec<BrokerSetting>> {
        Ok(settings::of_broker(&self.view))
    }

    fn subscriptions(&self) -> Told<Vec<Subscription>> {
        Ok(settings::subscriptions(&self.view))
    }

    fn peek(&self, ask: &Peek) -> Told<Peeked> {
        records::peek(&self.view, ask)
    }

    fn access(&self) -> Told<Access> {
        Ok(access::read(&self.view))
    }

    fn explain_access(&self, question: &AccessQuestion) -> Told<AccessAnswer> {
        Ok(access::answer(&self.view, question, &self.identity().address))
    }

    fn transactions(&self) -> Told<Vec<OpenTransaction>> {
        Ok(records::open_transactions(&self.view))
    }

    fn now_ms(&self) -> i64 {
        now_ms()
    }
}
