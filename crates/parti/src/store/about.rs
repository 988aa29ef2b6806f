//! What a store says of itself, for those who check a set-up.

/// What a store says of itself. Whatever it cannot tell is left open.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct About {
    /// What serves it, with its version, such as `nats-server 2.15.1`.
    pub server: Option<String>,
    /// What the server's clock showed when it answered, as RFC 3339.
    pub clock: Option<String>,
    /// How many servers keep each record.
    pub replicas: Option<usize>,
    /// How many servers there are, where a store can be kept by several.
    pub servers: Option<usize>,
    /// What should be mended, each with what to do.
    pub concerns: Vec<String>,
}
