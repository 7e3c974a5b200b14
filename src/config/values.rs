//! Setting types with a form of their own: secrets, time zones, times of day, node lists, optional texts.

use std::fmt;

use jiff::civil::Time;
use jiff::tz::TimeZone;

use crate::calendar::zone_named;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A text that is never printed: Debug and Serialize give `***`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

/// An IANA time zone. Checked when it is read, so that whoever holds one can use it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Zone(TimeZone);

/// A time of day, `HH:MM`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotifyAt(Time);

impl Secret {
    pub(super) const MASK: &'static str = "***";

    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The secret itself, for the one place that sends it.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(Self::MASK)
    }
}

impl Zone {
    #[must_use]
    pub fn utc() -> Self {
        Self(TimeZone::UTC)
    }

    /// The zone of this IANA name; none where there is no such zone.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        zone_named(name).map(Self)
    }

    #[must_use]
    pub fn time_zone(&self) -> &TimeZone {
        &self.0
    }
}

impl Serialize for Zone {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.0.iana_name().unwrap_or("UTC"))
    }
}

impl<'de> Deserialize<'de> for Zone {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        Self::named(&name).ok_or_else(|| D::Error::custom("expected an IANA time zone such as Europe/Berlin"))
    }
}

impl NotifyAt {
    #[must_use]
    pub const fn new(hour: i8, minute: i8) -> Self {
        Self(Time::constant(hour, minute, 0, 0))
    }

    #[must_use]
    pub fn time(self) -> Time {
        self.0
    }
}

impl Serialize for NotifyAt {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&format!("{:02}:{:02}", self.0.hour(), self.0.minute()))
    }
}

impl<'de> Deserialize<'de> for NotifyAt {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let time = Time::strptime("%H:%M", &text).ok().filter(|_| text.len() == "HH:MM".len());
        time.map(Self).ok_or_else(|| D::Error::custom("expected a time of day such as 09:00"))
    }
}

/// An absent text is written as the empty one: TOML and environment variables have no other word for "not set".
pub(super) mod optional {
    use super::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(text: &Option<String>, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(text.as_deref().unwrap_or_default())
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
        Ok(Some(String::deserialize(deserializer)?).filter(|text| !text.is_empty()))
    }
}

/// The same for a secret: empty or `***` when written.
pub(super) mod optional_secret {
    use super::{Deserializer, Secret, Serializer, optional};

    pub fn serialize<S: Serializer>(secret: &Option<Secret>, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(secret.as_ref().map_or("", |_| Secret::MASK))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Secret>, D::Error> {
        Ok(optional::deserialize(deserializer)?.map(Secret))
    }
}

/// A list of nodes, or the same as one text with commas, as flags and environment variables give it.
pub(super) mod nodes {
    use super::{Deserialize, Deserializer, fmt};
    use serde::de::{Error, SeqAccess, Visitor};

    use crate::redis::NodeAddress;

    struct Nodes;

    impl<'de> Visitor<'de> for Nodes {
        type Value = Vec<NodeAddress>;

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str("a list of host:port, or host:port,host:port")
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
            let nodes = text.split(',').map(str::trim).filter(|node| !node.is_empty());
            nodes.map(|node| node.parse().map_err(E::custom)).collect()
        }

        fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Self::Value, A::Error> {
            Vec::deserialize(serde::de::value::SeqAccessDeserializer::new(list))
        }
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<NodeAddress>, D::Error> {
        deserializer.deserialize_any(Nodes)
    }
}
