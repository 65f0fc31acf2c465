//! One row of the tables.

/// What a key configures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    Broker,
    Topic,
    Group,
    ClientMetrics,
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
    Ratio,
    /// For lists: every word is one of them.
    OneOf(&'static [&'static str]),
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
    /// Accepted, checked and stored for Apache Kafka, in case it opens the directory, but without
    /// effect on Ottla.
    NoEffect(&'static str),
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
    pub allowed: Allowed,
    /// One sentence.
    pub doc: &'static str,
    /// The cost of a larger or different value.
    pub cost: Option<&'static str>,
    pub support: Support,
    pub update: Update,
    /// Broker keys, in order of precedence.
    pub synonyms: &'static [Synonym],
}

impl ConfigKey {
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
            update: Update::ReadOnly,
            synonyms: &[],
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
}
