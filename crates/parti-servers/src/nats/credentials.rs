//! A server that asks for a credentials file, or for a user's key alone: an operator, its accounts and a user, signed once for
//! all and without an end.
//!
//! ```text
//!   operator ──signs──▶ account SYS
//!       └──signs──▶ account PARTI, with JetStream ──signs──▶ user parti: the credentials file
//! ```
//!
//! These are no secrets: they open servers on loopback that live as long as a test.

use std::path::{Path, PathBuf};

use crate::Error;
use crate::folder::write;

/// Whom the server trusts.
const OPERATOR: &str = "\
    eyJ0eXAiOiJKV1QiLCJhbGciOiJlZDI1NTE5LW5rZXkifQ.eyJpYXQiOjE3MDAwMDAwMDAsImlzcyI6Ik9CREZNW\
    E9ZWFQyWkFPT1RYR0U1VlhLRkpYMkw3UlQ2VDYyN1E2TUFTVlVQWVFGVUo2NFBMNTJVIiwibmFtZSI6InBhcnRpL\
    XRlc3QiLCJzdWIiOiJPQkRGTVhPWVhUMlpBT09UWEdFNVZYS0ZKWDJMN1JUNlQ2MjdRNk1BU1ZVUFlRRlVKNjRQT\
    DUyVSIsIm5hdHMiOnsidHlwZSI6Im9wZXJhdG9yIiwidmVyc2lvbiI6Miwic3lzdGVtX2FjY291bnQiOiJBQVpBM\
    lgyMlQ0TFRPUEkzUUFRN1dMRzc0WUIyM09ERDJUS0tRTlBCUk1GUDVCVEpXN1haSFlETCJ9LCJqdGkiOiJXUkNaR\
    ENHUDVGSlNCTDJSMjJXUEZCNEJDVFFBM05KQVZUUFVJR1Q3RVE3QlFPUlZSUVdRIn0.Zx_zX1fdQulreE411wE5K\
    73VeklXXyW2LPPTANVbQvufVlSDwp3mp_gPM-pKA0KHttcO8lJAGX2FwnD-rDYBBA";
/// The account that the server itself uses.
const SYSTEM_ID: &str = "AAZA2X22T4LTOPI3QAQ7WLG74YB23ODD2TKKQNPBRMFP5BTJW7XZHYDL";
/// What the operator says of it.
const SYSTEM: &str = "\
    eyJ0eXAiOiJKV1QiLCJhbGciOiJlZDI1NTE5LW5rZXkifQ.eyJpYXQiOjE3MDAwMDAwMDAsImlzcyI6Ik9CREZNW\
    E9ZWFQyWkFPT1RYR0U1VlhLRkpYMkw3UlQ2VDYyN1E2TUFTVlVQWVFGVUo2NFBMNTJVIiwibmFtZSI6IlNZUyIsI\
    nN1YiI6IkFBWkEyWDIyVDRMVE9QSTNRQVE3V0xHNzRZQjIzT0REMlRLS1FOUEJSTUZQNUJUSlc3WFpIWURMIiwib\
    mF0cyI6eyJ0eXBlIjoiYWNjb3VudCIsInZlcnNpb24iOjIsImxpbWl0cyI6eyJzdWJzIjotMSwiZGF0YSI6LTEsI\
    nBheWxvYWQiOi0xLCJpbXBvcnRzIjotMSwiZXhwb3J0cyI6LTEsIndpbGRjYXJkcyI6dHJ1ZSwiY29ubiI6LTEsI\
    mxlYWYiOi0xfX0sImp0aSI6IjJLWkZTV0tVTkg2VFBLQVJTTjRRVURBRkIyVzVUNzQyVlVJWTdNVDRUVlNXRUxIW\
    URCSUEifQ.14QIl7dZUKXhdnlOp96qeTJdM5iNDKedqFsUdIzQHUTvEkuk-6AaANhi4OKKN8qLWhgIyqlh0Bbyab\
    DWFVOJDA";
/// The account of Parti.
const ACCOUNT_ID: &str = "ABAWYMQ7VNIIQE2H5NYGQKDSR6NQFGUVLDXB4XA4EO6MND5NQHVUA74G";
/// What the operator says of it.
const ACCOUNT: &str = "\
    eyJ0eXAiOiJKV1QiLCJhbGciOiJlZDI1NTE5LW5rZXkifQ.eyJpYXQiOjE3MDAwMDAwMDAsImlzcyI6Ik9CREZNW\
    E9ZWFQyWkFPT1RYR0U1VlhLRkpYMkw3UlQ2VDYyN1E2TUFTVlVQWVFGVUo2NFBMNTJVIiwibmFtZSI6IlBBUlRJI\
    iwic3ViIjoiQUJBV1lNUTdWTklJUUUySDVOWUdRS0RTUjZOUUZHVVZMRFhCNFhBNEVPNk1ORDVOUUhWVUE3NEciL\
    CJuYXRzIjp7InR5cGUiOiJhY2NvdW50IiwidmVyc2lvbiI6MiwibGltaXRzIjp7InN1YnMiOi0xLCJkYXRhIjotM\
    SwicGF5bG9hZCI6LTEsImltcG9ydHMiOi0xLCJleHBvcnRzIjotMSwid2lsZGNhcmRzIjp0cnVlLCJjb25uIjotM\
    SwibGVhZiI6LTEsIm1lbV9zdG9yYWdlIjotMSwiZGlza19zdG9yYWdlIjotMSwic3RyZWFtcyI6LTEsImNvbnN1b\
    WVyIjotMX19LCJqdGkiOiJRSzdVRFJJR05aVUtNNTRZVktBRkdFWU9BNUVNWktVSVVVU09URUZGWExYNVVUNkZKS\
    1dRIn0.1wlcfJ1-5Vsluib6LGqYx8kydZs3fuE-YY8ZRBPyxI1E2Y3Xr4HPw3AqIFVAQjbgkczXwTR3x53W2e84F\
    1bPBw";
/// What the account says of its user.
const USER: &str = "\
    eyJ0eXAiOiJKV1QiLCJhbGciOiJlZDI1NTE5LW5rZXkifQ.eyJpYXQiOjE3MDAwMDAwMDAsImlzcyI6IkFCQVdZT\
    VE3Vk5JSVFFMkg1TllHUUtEU1I2TlFGR1VWTERYQjRYQTRFTzZNTkQ1TlFIVlVBNzRHIiwibmFtZSI6InBhcnRpI\
    iwic3ViIjoiVUFETFFZTldBN0VNRUdQR0JORlE2UllHQzNWNlo0MkxKSlRSWFk1SE5QU1RMWkpDRVpNTFJXVFUiL\
    CJuYXRzIjp7InR5cGUiOiJ1c2VyIiwidmVyc2lvbiI6Miwic3VicyI6LTEsImRhdGEiOi0xLCJwYXlsb2FkIjotM\
    X0sImp0aSI6IjNCRVJaUEtMQTRZQzQ0WE5YT1VUUzVMWlBRTjRNMk5LRlVDVUpMQlNHVjJBSTdMWUxQM1EifQ.IB\
    wkab-J4k8-mKXPvytwLk68_N8A7QXgX7h31ZFgqlh71K98kpH66G5dBIxu-776FBMmDnD_xrdIp0igxLajBg";
/// The user's public key.
const USER_ID: &str = "UADLQYNWA7EMEGPGBNFQ6RYGC3V6Z42LJJTRXY5HNPSTLZJCEZMLRWTU";
/// The user's key.
const SEED: &str = "SUAPFIMAXNSJMSKL7NDVUSH6OIP6MTRA7JDYU7VRORXO3ICQLOF5PHVQ2M";

/// Where the credentials file of a server is.
pub(super) fn file(folder: &Path) -> PathBuf {
    folder.join("parti.creds")
}

/// Where the file with the user's key alone is.
pub(super) fn seed_file(folder: &Path) -> PathBuf {
    folder.join("parti.nk")
}

/// Writes the file with the user's key alone.
pub(super) fn make_seed(folder: &Path) -> Result<(), Error> {
    write(&seed_file(folder), &format!("{SEED}\n"))
}

/// What a server reads that knows the user by its public key.
pub(super) fn nkey_config() -> String {
    format!("authorization {{ users: [ {{ nkey: {USER_ID} }} ] }}")
}

/// Writes the credentials file.
pub(super) fn make(folder: &Path) -> Result<(), Error> {
    let dashes = "-----";
    write(
        &file(folder),
        &format!(
            "{dashes}BEGIN NATS USER JWT{dashes}\n{USER}\n------END NATS USER JWT------\n\n\
             {dashes}BEGIN USER NKEY SEED{dashes}\n{SEED}\n------END USER NKEY SEED------\n"
        ),
    )
}

/// What the server reads.
pub(super) fn config() -> String {
    format!(
        "operator: \"{OPERATOR}\"\nsystem_account: {SYSTEM_ID}\nresolver: MEMORY\n\
         resolver_preload {{\n  {SYSTEM_ID}: \"{SYSTEM}\"\n  {ACCOUNT_ID}: \"{ACCOUNT}\"\n}}"
    )
}
