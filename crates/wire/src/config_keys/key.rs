//! One row of the tables.

/// What a key configures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    Broker,
    Topic,
    Group,
    ClientMetrics,
}

/// Which client a setting belongs to: the three share most keys and differ in some defaults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ClientKind {
    #[default]
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

/// Kafka's types of values, as DescribeConfigs names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueType {
    Boolean,
    String,
    Int,
    Short,
    Long,
    Double,
    /// Words, comma-separated.
    List,
    /// The name of a Java class.
    Class,
    /// A secret: never shown.
    Password,
}

impl ValueType {
    /// The number in DescribeConfigs responses.
    pub fn code(self) -> i8 {
        match self {
            ValueType::Boolean => 1,
            ValueType::String => 2,
            ValueType::Int => 3,
            ValueType::Short => 4,
            ValueType::Long => 5,
            ValueType::Double => 6,
            ValueType::List => 7,
            ValueType::Class => 8,
            ValueType::Password => 9,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            ValueType::Boolean => "boolean",
            ValueType::String => "string",
            ValueType::Int => "int",
            ValueType::Short => "short",
            ValueType::Long => "long",
            ValueType::Double => "double",
            ValueType::List => "list",
            ValueType::Class => "class",
            ValueType::Password => "password",
        }
    }
}

/// What a number counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    None,
    Bytes,
    Milliseconds,
    Seconds,
    Minutes,
    Hours,
    Records,
    BytesPerSecond,
}

impl Unit {
    /// The unit's name for messages and pages; empty for `None`.
    pub fn name(self) -> &'static str {
        match self {
            Unit::None => "",
            Unit::Bytes => "bytes",
            Unit::Milliseconds => "ms",
            Unit::Seconds => "s",
            Unit::Minutes => "minutes",
            Unit::Hours => "hours",
            Unit::Records => "records",
            Unit::BytesPerSecond => "bytes/s",
        }
    }
}

/// The values that a key allows, within its type.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Allowed {
    Any,
    AtLeast(i64),
    Between(i64, i64),
    /// The range, and -1 for the default.
    BetweenOrMinusOne(i64, i64),
    /// For doubles.
    Within(f64, f64),
    /// For lists: every word is one of them.
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

/// When a new value takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Update {
    /// At the next start.
    ReadOnly,
    /// Immediately; set for one broker.
    PerBroker,
    /// Immediately; set for one broker or for all.
    ClusterWide,
    /// Immediately: keys of topics, groups and client metrics.
    Dynamic,
}

impl Update {
    pub fn is_dynamic(self) -> bool {
        self != Update::ReadOnly
    }
}

/// What Ottla does with a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Support {
    Honoured,
    /// Accepted and checked, but without effect: a broker stores it for Apache Kafka, in case that
    /// opens the directory; a client takes files that were written for Java.
    NoEffect(&'static str),
    /// Of a client: any value other than the default is an error, because ignoring it would break a
    /// guarantee. The text is the reason.
    Refused(&'static str),
}

/// A key whose value applies if this one is not set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Synonym {
    pub name: &'static str,
    /// Converts its unit to the key's own unit.
    pub factor: i64,
}

/// Everything about one key.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ConfigKey {
    pub name: &'static str,
    pub value_type: ValueType,
    pub unit: Unit,
    /// As Kafka prints it; `None`: null, not set.
    pub default: Option<&'static str>,
    /// A client cannot be created without it.
    pub is_required: bool,
    pub allowed: Allowed,
    /// One sentence.
    pub doc: &'static str,
    /// The cost of a larger or different value.
    pub cost: Option<&'static str>,
    pub support: Support,
    pub update: Update,
    /// Broker keys, in order of precedence.
    pub synonyms: &'static [Synonym],
    /// Of a client's setting: the clients that have it.
    pub clients: &'static [ClientKind],
    /// Not one of Kafka's own names.
    pub is_ours: bool,
}

impl ConfigKey {
    pub fn is_of(&self, client: ClientKind) -> bool {
        self.clients.contains(&client)
    }

    pub fn is_sensitive(&self) -> bool {
        self.value_type == ValueType::Password
    }

    pub fn is_honoured(&self) -> bool {
        self.support == Support::Honoured
    }

    const fn new(
        name: &'static str,
        value_type: ValueType,
        default: Option<&'static str>,
        doc: &'static str,
    ) -> Self {
        ConfigKey {
            name,
            value_type,
            unit: Unit::None,
            default,
            allowed: Allowed::Any,
            doc,
            cost: None,
            support: Support::Honoured,
            is_required: false,
            update: Update::ReadOnly,
            synonyms: &[],
            clients: &ClientKind::ALL,
            is_ours: false,
        }
    }

    pub(super) const fn unset(mut self) -> Self {
        self.default = None;
        self
    }

    pub(super) const fn unit(mut self, unit: Unit) -> Self {
        self.unit = unit;
        self
    }

    pub(super) const fn ms(self) -> Self {
        self.unit(Unit::Milliseconds)
    }

    pub(super) const fn bytes(self) -> Self {
        self.unit(Unit::Bytes)
    }

    pub(super) const fn at_least(mut self, minimum: i64) -> Self {
        self.allowed = Allowed::AtLeast(minimum);
        self
    }

    pub(super) const fn between(mut self, minimum: i64, maximum: i64) -> Self {
        self.allowed = Allowed::Between(minimum, maximum);
        self
    }

    pub(super) const fn allowed(mut self, allowed: Allowed) -> Self {
        self.allowed = allowed;
        self
    }

    pub(super) const fn one_of(self, words: &'static [&'static str]) -> Self {
        self.allowed(Allowed::OneOf(words))
    }

    pub(super) const fn costs(mut self, cost: &'static str) -> Self {
        self.cost = Some(cost);
        self
    }

    pub(super) const fn no_effect(mut self, reason: &'static str) -> Self {
        self.support = Support::NoEffect(reason);
        self
    }

    pub(super) const fn update(mut self, update: Update) -> Self {
        self.update = update;
        self
    }

    pub(super) const fn cluster_wide(self) -> Self {
        self.update(Update::ClusterWide)
    }

    /// Makes it a key of these clients.
    pub(super) const fn of(mut self, clients: &'static [ClientKind]) -> Self {
        self.clients = clients;
        self
    }

    pub(super) const fn required(mut self) -> Self {
        self.default = None;
        self.is_required = true;
        self
    }

    pub(super) const fn refused(mut self, reason: &'static str) -> Self {
        self.support = Support::Refused(reason);
        self
    }

    pub(super) const fn ours(mut self) -> Self {
        self.is_ours = true;
        self
    }

    pub(super) const fn from(mut self, synonyms: &'static [Synonym]) -> Self {
        self.synonyms = synonyms;
        self
    }
}

/// A synonym in the same unit.
pub(super) const fn same(name: &'static str) -> Synonym {
    Synonym { name, factor: 1 }
}

pub(super) const fn scaled(name: &'static str, factor: i64) -> Synonym {
    Synonym { name, factor }
}

macro_rules! constructors {
    ($($function:ident $variant:ident)*) => {
        $(pub(super) const fn $function(name: &'static str, default: &'static str, doc: &'static str) -> ConfigKey {
            ConfigKey::new(name, ValueType::$variant, Some(default), doc)
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
pub(super) const fn password(name: &'static str, doc: &'static str) -> ConfigKey {
    ConfigKey::new(name, ValueType::Password, None, doc)
}
