//! The client of a connection: address, listener and principal, its tenant, and the row of its
//! metrics.

use std::sync::Arc;

use ottla_core::quota::ClientQuota;
use ottla_core::request::ConnectionContext;
use ottla_core::tenant::{TenantClaim, TenantId};

use super::super::loop_context::LoopContext;
use super::super::mailbox::NewConnection;
use super::super::tenancy::Tenancy;
use crate::metrics::recorder::{ClientIndex, Origin};
use crate::tls::spoken::Spoken;

pub(super) struct Client {
    /// Its tenant is always that of `tenancy`.
    context: ConnectionContext,
    tenancy: Tenancy,
    /// The client id of the last request, and the index under which it is counted.
    named: Option<(Option<Box<str>>, ClientIndex)>,
    /// `None`: the connection is without TLS.
    spoken: Option<Spoken>,
}

impl Client {
    pub fn new(new: &NewConnection, principal: Arc<str>, context: &mut LoopContext) -> Client {
        let claim = TenantClaim {
            principal: &principal,
            client_id: None,
            address: new.peer.ip(),
        };
        let tenancy = Tenancy::new(&context.tenants, &claim, context.now());
        context.accounts.open(tenancy.lease());
        Client {
            context: ConnectionContext {
                connection_id: new.connection_id,
                peer_address: new.peer.ip(),
                peer_port: new.peer.port(),
                listener_name: new.listener_name.clone(),
                principal,
                identity: Arc::default(),
                permitted: Arc::default(),
                tenant: tenancy.id(),
                quota: None,
            },
            tenancy,
            named: None,
            spoken: new.transport.spoken(),
        }
    }

    pub fn context(&self) -> &ConnectionContext {
        &self.context
    }

    pub fn spoken(&self) -> Option<Spoken> {
        self.spoken
    }

    pub fn origin(&self) -> Origin<'_> {
        Origin {
            principal: &self.context.principal,
            spoken: self.spoken,
        }
    }

    pub fn tenant(&self) -> TenantId {
        self.context.tenant
    }

    pub fn quota(&self) -> Option<&Arc<ClientQuota>> {
        self.context.quota.as_ref()
    }

    /// The client id of the last request.
    pub fn name(&self) -> &str {
        let named = self.named.as_ref().and_then(|(name, _)| name.as_deref());
        named.unwrap_or_default()
    }

    /// Takes the client id of a request: a new one may mean another tenant and other quotas.
    /// Returns the index under which the client is counted.
    pub fn identify(&mut self, context: &mut LoopContext, client_id: Option<&str>) -> ClientIndex {
        let index = self.index(context, client_id);
        self.context.refresh_quota(&context.quotas, client_id);
        index
    }

    fn index(&mut self, context: &mut LoopContext, client_id: Option<&str>) -> ClientIndex {
        let claim = TenantClaim {
            principal: &self.context.principal,
            client_id,
            address: self.context.peer_address,
        };
        match &self.named {
            Some((known, index)) if known.as_deref() == client_id => {
                let index = *index;
                if self.tenancy.should_try_again(context.now()) {
                    self.tenancy.try_again(&context.tenants, &claim, context.now());
                    self.belong(context);
                }
                index
            }
            _ => {
                self.tenancy.claim(&context.tenants, &claim, context.now());
                self.belong(context);
                let index = context.records().client(client_id.unwrap_or(""));
                self.named = Some((client_id.map(Box::from), index));
                index
            }
        }
    }

    /// From here on the connection is that of `principal`, with its tenant and its quotas. Its next
    /// request tells its client id.
    pub fn authenticated(&mut self, context: &mut LoopContext, principal: Arc<str>) {
        if principal == self.context.principal {
            return;
        }
        self.context.principal = principal;
        // A quota is looked up again when the client id or the quotas change, not for another user.
        self.context.quota = None;
        self.named = None;
        let claim = TenantClaim {
            principal: &self.context.principal,
            client_id: None,
            address: self.context.peer_address,
        };
        self.tenancy.try_again(&context.tenants, &claim, context.now());
        self.belong(context);
    }

    fn belong(&mut self, context: &mut LoopContext) {
        self.context.tenant = self.tenancy.id();
        context.accounts.open(self.tenancy.lease());
    }
}
