//! Whole numbers, as all languages write them.

use std::fmt;

use serde::Deserialize;
use serde::de::{self, Deserializer, Unexpected, Visitor};

/// A number that is whole, however it is written: languages without integers write `7.0`, which
/// JSON Schema calls an integer, too.
pub struct Whole(pub u64);

impl<'de> Deserialize<'de> for Whole {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;

        impl Visitor<'_> for Reader {
            type Value = Whole;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a whole number that is not negative")
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Whole, E> {
                Ok(Whole(number))
            }

            fn visit_f64<E: de::Error>(self, number: f64) -> Result<Whole, E> {
                // Below 2^64, every whole one is a number of this kind.
                if number.fract() == 0.0 && (0.0..18_446_744_073_709_551_616.0).contains(&number) {
                    return Ok(Whole(number as u64));
                }
                Err(E::invalid_value(Unexpected::Float(number), &self))
            }
        }

        deserializer.deserialize_u64(Reader)
    }
}

/// Reads one.
pub fn whole<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    Whole::deserialize(deserializer).map(|Whole(number)| number)
}

/// Reads one, if there is one.
pub fn maybe_whole<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    let found = Option::<Whole>::deserialize(deserializer)?;
    Ok(found.map(|Whole(number)| number))
}
