//! The part of etcd's v3 protocol that is used here, written by hand: the build needs no protoc.
//!
//! Field numbers are those of etcd's `rpc.proto`, `kv.proto` and `auth.proto`; what is never read
//! or set is left out, which protobuf allows.

use bytes::Bytes;
use prost::{Enumeration, Message, Oneof};

/// Reads keys.
pub const RANGE: &str = "/etcdserverpb.KV/Range";
/// Compares, and then does one thing or the other.
pub const TXN: &str = "/etcdserverpb.KV/Txn";
/// Tells of changes.
pub const WATCH: &str = "/etcdserverpb.Watch/Watch";
/// Turns a password into a token.
pub const AUTHENTICATE: &str = "/etcdserverpb.Auth/Authenticate";
/// Says how the server is.
pub const STATUS: &str = "/etcdserverpb.Maintenance/Status";
/// Who belongs to the cluster.
pub const MEMBER_LIST: &str = "/etcdserverpb.Cluster/MemberList";

#[derive(Clone, PartialEq, Message)]
pub struct ResponseHeader {
    #[prost(int64, tag = "3")]
    pub revision: i64,
}

#[derive(Clone, PartialEq, Message)]
pub struct KeyValue {
    #[prost(bytes = "vec", tag = "1")]
    pub key: Vec<u8>,
    #[prost(int64, tag = "3")]
    pub mod_revision: i64,
    #[prost(bytes = "bytes", tag = "5")]
    pub value: Bytes,
}

#[derive(Clone, PartialEq, Message)]
pub struct RangeRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub key: Vec<u8>,
    /// Exclusive; empty means the one key.
    #[prost(bytes = "vec", tag = "2")]
    pub range_end: Vec<u8>,
    #[prost(int64, tag = "3")]
    pub limit: i64,
    /// 0 means the newest.
    #[prost(int64, tag = "4")]
    pub revision: i64,
    #[prost(bool, tag = "8")]
    pub keys_only: bool,
}

#[derive(Clone, PartialEq, Message)]
pub struct RangeResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    #[prost(message, repeated, tag = "2")]
    pub kvs: Vec<KeyValue>,
    #[prost(bool, tag = "3")]
    pub more: bool,
}

#[derive(Clone, PartialEq, Message)]
pub struct PutRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub key: Vec<u8>,
    #[prost(bytes = "bytes", tag = "2")]
    pub value: Bytes,
}

#[derive(Clone, PartialEq, Message)]
pub struct DeleteRangeRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub key: Vec<u8>,
}

/// An answer of which nothing is needed.
#[derive(Clone, PartialEq, Message)]
pub struct Done {}

#[derive(Clone, PartialEq, Message)]
pub struct RequestOp {
    #[prost(oneof = "Request", tags = "1, 2, 3")]
    pub request: Option<Request>,
}

#[derive(Clone, PartialEq, Oneof)]
pub enum Request {
    #[prost(message, tag = "1")]
    Range(RangeRequest),
    #[prost(message, tag = "2")]
    Put(PutRequest),
    #[prost(message, tag = "3")]
    DeleteRange(DeleteRangeRequest),
}

#[derive(Clone, PartialEq, Message)]
pub struct ResponseOp {
    #[prost(oneof = "Response", tags = "1, 2, 3")]
    pub response: Option<Response>,
}

#[derive(Clone, PartialEq, Oneof)]
pub enum Response {
    #[prost(message, tag = "1")]
    Range(RangeResponse),
    #[prost(message, tag = "2")]
    Put(Done),
    #[prost(message, tag = "3")]
    DeleteRange(Done),
}

/// "The revision of this key equals that one". The kind of comparison is left out: its default, 0,
/// is equality.
#[derive(Clone, PartialEq, Message)]
pub struct Compare {
    #[prost(enumeration = "CompareTarget", tag = "2")]
    pub target: i32,
    #[prost(bytes = "vec", tag = "3")]
    pub key: Vec<u8>,
    #[prost(oneof = "CompareWith", tags = "5, 6")]
    pub with: Option<CompareWith>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum CompareTarget {
    Version = 0,
    Create = 1,
    Mod = 2,
}

#[derive(Clone, Copy, PartialEq, Oneof)]
pub enum CompareWith {
    #[prost(int64, tag = "5")]
    CreateRevision(i64),
    #[prost(int64, tag = "6")]
    ModRevision(i64),
}

#[derive(Clone, PartialEq, Message)]
pub struct TxnRequest {
    #[prost(message, repeated, tag = "1")]
    pub compare: Vec<Compare>,
    #[prost(message, repeated, tag = "2")]
    pub success: Vec<RequestOp>,
    #[prost(message, repeated, tag = "3")]
    pub failure: Vec<RequestOp>,
}

#[derive(Clone, PartialEq, Message)]
pub struct TxnResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    #[prost(bool, tag = "2")]
    pub succeeded: bool,
    #[prost(message, repeated, tag = "3")]
    pub responses: Vec<ResponseOp>,
}

#[derive(Clone, PartialEq, Message)]
pub struct WatchRequest {
    #[prost(message, optional, tag = "1")]
    pub create: Option<WatchCreateRequest>,
}

#[derive(Clone, PartialEq, Message)]
pub struct WatchCreateRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub range_end: Vec<u8>,
    #[prost(int64, tag = "3")]
    pub start_revision: i64,
    /// Lets the server split what is too much for one message.
    #[prost(bool, tag = "8")]
    pub fragment: bool,
}

#[derive(Clone, PartialEq, Message)]
pub struct WatchResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    #[prost(bool, tag = "3")]
    pub created: bool,
    #[prost(bool, tag = "4")]
    pub canceled: bool,
    /// Not 0 if the watch was cancelled because what it asked for is no longer kept.
    #[prost(int64, tag = "5")]
    pub compact_revision: i64,
    #[prost(string, tag = "6")]
    pub cancel_reason: String,
    #[prost(message, repeated, tag = "11")]
    pub events: Vec<Event>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Event {
    #[prost(enumeration = "EventKind", tag = "1")]
    pub kind: i32,
    #[prost(message, optional, tag = "2")]
    pub kv: Option<KeyValue>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum EventKind {
    Put = 0,
    Delete = 1,
}

/// Its `Debug` shows no password.
#[derive(Clone, PartialEq, Message)]
#[prost(skip_debug)]
pub struct AuthenticateRequest {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub password: String,
}

impl std::fmt::Debug for AuthenticateRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AuthenticateRequest({:?}, ***)", self.name)
    }
}

/// Its `Debug` shows no token.
#[derive(Clone, PartialEq, Message)]
#[prost(skip_debug)]
pub struct AuthenticateResponse {
    #[prost(string, tag = "2")]
    pub token: String,
}

impl std::fmt::Debug for AuthenticateResponse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("AuthenticateResponse(***)")
    }
}

#[derive(Clone, PartialEq, Message)]
pub struct StatusRequest {}

#[derive(Clone, PartialEq, Message)]
pub struct StatusResponse {
    #[prost(string, tag = "2")]
    pub version: String,
    /// Alarms, and what else is wrong with the member.
    #[prost(string, repeated, tag = "8")]
    pub errors: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
pub struct MemberListRequest {}

#[derive(Clone, PartialEq, Message)]
pub struct MemberListResponse {
    #[prost(message, repeated, tag = "2")]
    pub members: Vec<Member>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Member {
    #[prost(string, tag = "2")]
    pub name: String,
    /// One that only listens until it has caught up.
    #[prost(bool, tag = "5")]
    pub is_learner: bool,
}

/// Forgets the past; only tests do.
#[cfg(test)]
#[derive(Clone, PartialEq, Message)]
pub struct CompactionRequest {
    #[prost(int64, tag = "1")]
    pub revision: i64,
    #[prost(bool, tag = "2")]
    pub physical: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    // The bytes are worked out by hand from etcd's .proto files: (number << 3) | wire type, where
    // type 0 is a varint and type 2 has a length.

    #[test]
    fn a_conditional_put_has_the_bytes_that_etcd_expects() {
        let txn = TxnRequest {
            compare: vec![
                Compare {
                    target: CompareTarget::Mod as i32,
                    key: b"k".to_vec(),
                    with: Some(CompareWith::ModRevision(300)),
                },
                Compare {
                    target: CompareTarget::Create as i32,
                    key: b"n".to_vec(),
                    with: Some(CompareWith::CreateRevision(0)),
                },
            ],
            success: vec![
                RequestOp {
                    request: Some(Request::Put(PutRequest {
                        key: b"k".to_vec(),
                        value: Bytes::from_static(b"vv"),
                    })),
                },
                RequestOp {
                    request: Some(Request::DeleteRange(DeleteRangeRequest {
                        key: b"n".to_vec(),
                    })),
                },
            ],
            failure: vec![RequestOp {
                request: Some(Request::Range(RangeRequest {
                    key: b"k".to_vec(),
                    ..RangeRequest::default()
                })),
            }],
        };
        let expected = [
            &[0x0a, 8, 0x10, 2, 0x1a, 1, b'k', 0x30, 0xac, 0x02][..],
            // The 0 of a oneof is sent, unlike other zeros.
            &[0x0a, 7, 0x10, 1, 0x1a, 1, b'n', 0x28, 0],
            &[0x12, 9, 0x12, 7, 0x0a, 1, b'k', 0x12, 2, b'v', b'v'],
            &[0x12, 5, 0x1a, 3, 0x0a, 1, b'n'],
            &[0x1a, 5, 0x0a, 3, 0x0a, 1, b'k'],
        ]
        .concat();
        assert_eq!(txn.encode_to_vec(), expected);
    }

    #[test]
    fn requests_have_the_bytes_that_etcd_expects() {
        let range = RangeRequest {
            key: b"a".to_vec(),
            range_end: b"b".to_vec(),
            limit: 1,
            revision: 5,
            keys_only: true,
        };
        assert_eq!(
            range.encode_to_vec(),
            [0x0a, 1, b'a', 0x12, 1, b'b', 0x18, 1, 0x20, 5, 0x40, 1]
        );
        let watch = WatchRequest {
            create: Some(WatchCreateRequest {
                key: b"a".to_vec(),
                range_end: b"b".to_vec(),
                start_revision: 7,
                fragment: true,
            }),
        };
        assert_eq!(
            watch.encode_to_vec(),
            [0x0a, 10, 0x0a, 1, b'a', 0x12, 1, b'b', 0x18, 7, 0x40, 1]
        );
        let login = AuthenticateRequest {
            name: "u".into(),
            password: "hush".into(),
        };
        assert_eq!(login.encode_to_vec(), b"\x0a\x01u\x12\x04hush");
        assert!(!format!("{login:?}").contains("hush"));
    }

    #[test]
    fn answers_are_read_past_what_is_not_needed() {
        // Header with cluster, member, revision 9 and term; one event: delete of "k" at 9, with
        // create revision, version and lease along; the fields that are left out are passed over.
        let bytes = [
            &[0x0a, 8, 0x08, 1, 0x10, 2, 0x18, 9, 0x20, 3][..],
            &[0x10, 4, 0x5a, 15, 0x08, 1, 0x12, 11],
            &[0x0a, 1, b'k', 0x10, 2, 0x18, 9, 0x20, 1, 0x30, 6],
        ]
        .concat();
        let response = WatchResponse::decode(&bytes[..]).expect("good");
        assert_eq!(response.header.map(|header| header.revision), Some(9));
        let event = &response.events[0];
        assert_eq!(event.kind(), EventKind::Delete);
        let kv = event.kv.as_ref().expect("kv");
        assert_eq!((kv.key.as_slice(), kv.mod_revision), (&b"k"[..], 9));
    }
}
