//! One row of the table of client settings.

use ottla_wire::config_keys::{Unit, ValueType};

/// Which client a setting belongs to: the three clients share most keys and differ in some
/// defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ClientKind {
    Producer,
    Consumer,
    Admin,
}

impl ClientKind {
    pub const ALL: [ClientKind; 3] = [ClientKind::Producer, ClientKind::Consumer, ClientKind::Admin];

    pub fn name(self) -> &'static str {
        match self {
            ClientKind::Producer => "producer",
            ClientKind::Consumer => "consumer",
            ClientKind::Admin => "admin",
        }
    }
}

/// What a value must satisfy, beyond its type.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rule {
    Any,
    AtLeast(i64),
    Between(i64, i64),
    BetweenOrMinusOne(i64, i64),
    /// For doubles.
    Within(f64, f64),
    OneOf(&'static [&'static str]),
    /// The words in the order in which Kafka's error lists them.
    OneOfIgnoringCase(&'static [&'static str]),
    /// One of two words in any case, with an error text of its own.
    Either(&'static str, &'static str),
    /// Not set, or not empty.
    NotEmpty,
    /// For lists: at least one word.
    NotEmptyList,
    /// `auto.offset.reset`: three words or `by_duration:` and an ISO 8601 duration (KIP-1106).
    OffsetReset,
}

/// What this client does with a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Support {
    Honoured,
    /// Accepted and checked, so that a file written for Java works, but without effect. The text is
    /// the reason.
    NoEffect(&'static str),
    /// Any value other than the default is an error, because ignoring it would break a guarantee.
    /// The text is the reason.
    Refused(&'static str),
}

/// The value of a key that is not set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Default {
    /// As text, in the form in which Kafka prints it.
    Text(&'static str),
    /// Kafka's null.
    Unset,
    /// The client cannot be created without it.
    Required,
}

/// One key. A key whose defaults differ between clients has a row for each.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClientKey {
    pub name: &'static str,
    pub clients: &'static [ClientKind],
    pub value_type: ValueType,
    pub unit: Unit,
    pub default: Default,
    pub rule: Rule,
    /// One sentence.
    pub doc: &'static str,
    /// The cost of another value; no full stop.
    pub cost: Option<&'static str>,
    pub support: Support,
    /// Not one of Kafka's own names.
    pub is_ours: bool,
}

const ALL: &[ClientKind] = &ClientKind::ALL;

impl ClientKey {
    const fn new(
        name: &'static str,
        value_type: ValueType,
        default: Default,
        doc: &'static str,
    ) -> ClientKey {
        ClientKey {
            name,
            clients: ALL,
            value_type,
            unit: Unit::None,
            default,
            rule: Rule::Any,
            doc,
            cost: None,
            support: Support::Honoured,
            is_ours: false,
        }
    }

    pub fn is_of(&self, client: ClientKind) -> bool {
        self.clients.contains(&client)
    }

    pub fn is_secret(&self) -> bool {
        self.value_type == ValueType::Password
    }

    pub(super) const fn of(mut self, clients: &'static [ClientKind]) -> ClientKey {
        self.clients = clients;
        self
    }

    pub(super) const fn unset(mut self) -> ClientKey {
        self.default = Default::Unset;
        self
    }

    pub(super) const fn required(mut self) -> ClientKey {
        self.default = Default::Required;
        self
    }

    pub(super) const fn unit(mut self, unit: Unit) -> ClientKey {
        self.unit = unit;
        self
    }

    pub(super) const fn ms(self) -> ClientKey {
        self.unit(Unit::Milliseconds)
    }

    pub(super) const fn bytes(self) -> ClientKey {
        self.unit(Unit::Bytes)
    }

    pub(super) const fn rule(mut self, rule: Rule) -> ClientKey {
        self.rule = rule;
        self
    }

    pub(super) const fn at_least(self, minimum: i64) -> ClientKey {
        self.rule(Rule::AtLeast(minimum))
    }

    pub(super) const fn between(self, minimum: i64, maximum: i64) -> ClientKey {
        self.rule(Rule::Between(minimum, maximum))
    }

    pub(super) const fn one_of(self, words: &'static [&'static str]) -> ClientKey {
        self.rule(Rule::OneOf(words))
    }

    pub(super) const fn costs(mut self, cost: &'static str) -> ClientKey {
        self.cost = Some(cost);
        self
    }

    pub(super) const fn no_effect(mut self, reason: &'static str) -> ClientKey {
        self.support = Support::NoEffect(reason);
        self
    }

    pub(super) const fn refused(mut self, reason: &'static str) -> ClientKey {
        self.support = Support::Refused(reason);
        self
    }

    pub(super) const fn ours(mut self) -> ClientKey {
        self.is_ours = true;
        self
    }
}

macro_rules! constructors {
    ($($function:ident $variant:ident)*) => {
        $(pub(super) const fn $function(name: &'static str, default: &'static str, doc: &'static str) -> ClientKey {
            ClientKey::new(name, ValueType::$variant, Default::Text(default), doc)
        })*
    };
}

constructors! {
    boolean Boolean
    string String
    int Int
    short Short
    long Long
    double Double
    list List
    class Class
}

/// A secret; it never has a default.
pub(super) const fn password(name: &'static str, doc: &'static str) -> ClientKey {
    ClientKey::new(name, ValueType::Password, Default::Unset, doc)
}
