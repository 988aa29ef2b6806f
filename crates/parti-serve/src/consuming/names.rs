//! Names that clients bring along, and how they are described.

use parti::core::codec;
use parti::core::problem::Problem;
use parti::core::text::UNSEEN;
use utoipa::openapi::schema::{Object, ObjectBuilder, Type};

/// The longest name of a consumer, in characters.
const LONGEST: usize = 200;

/// Checks what a new consumer calls itself.
pub fn check_consumer(name: &str) -> Result<(), Problem> {
    codec::check_readable("consumer", name)?;
    match name.chars().count() {
        0..=LONGEST => Ok(()),
        long => Err(Problem::new(
            "consumer",
            name,
            format!("has {long} characters"),
            format!("give it up to {LONGEST}"),
        )),
    }
}

/// Whether a name of a session that is there already can be shown and logged.
pub fn can_be_told(name: &str) -> bool {
    (1..=LONGEST).contains(&name.chars().count()) && !name.chars().any(char::is_control)
}

/// A name that can be seen, as `check_readable` wants it.
pub fn schema(described: &str) -> ObjectBuilder {
    ObjectBuilder::new()
        .schema_type(Type::String)
        .description(Some(described))
        .pattern(Some(pattern()))
}

/// A consumer's name.
pub fn consumer_schema() -> Object {
    schema("What it calls itself.")
        .min_length(Some(1))
        .max_length(Some(LONGEST))
        .build()
}

/// What `check_readable` takes, for those who read OpenAPI: one pattern for all languages, so no
/// names of classes, and characters past U+FFFF as they are.
fn pattern() -> String {
    let code = |c: char| match u32::from(c) {
        code @ 0..=0xffff => format!("\\u{code:04x}"),
        _ => c.to_string(),
    };
    let ranges = UNSEEN.map(|(first, last)| format!("{}-{}", code(first), code(last)));
    let unseen = ranges.concat();
    format!("^[^\\s{unseen}](?:[^{unseen}]*[^\\s{unseen}])?$")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_consumers_name_can_be_seen_and_is_not_too_long() {
        for fine in ["x", "a b", "заказы", &"é".repeat(LONGEST)] {
            assert_eq!(check_consumer(fine), Ok(()));
        }
        for (wrong, why) in [
            ("", r#"consumer: "" is empty"#),
            (" x", r#"consumer: " x" begins or ends with a space"#),
            (
                "x\u{200d}",
                r#"consumer: "x\u{200d}" contains the invisible character"#,
            ),
            (
                &"x".repeat(LONGEST + 1),
                "has 201 characters; give it up to 200",
            ),
        ] {
            let refused = check_consumer(wrong).expect_err(why).to_string();
            assert!(refused.contains(why), "{refused}");
        }
    }

    #[test]
    fn the_pattern_has_every_range_once() {
        let pattern = pattern();
        for part in [
            r"^[^\s\u0000-\u001f\u007f-\u009f\u00ad-\u00ad",
            r"\u2028-\u2029\u202a-\u202e",
            "\u{e0000}-\u{e0fff}])?$",
        ] {
            assert!(pattern.contains(part), "{pattern}");
        }
    }
}
