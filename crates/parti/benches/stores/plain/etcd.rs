//! Transactions of as many writes as etcd takes, several of them at once, by tonic.
//!
//! The messages are those of etcd's `rpc.proto`, with what is not needed left out.

use async_trait::async_trait;
use futures_util::{StreamExt, stream};
use parti::store::Bytes;
use prost::Message;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};
use tonic_prost::ProstCodec;

use super::Plain;

/// etcd's limit.
const WRITES: usize = 128;

const AT_ONCE: usize = 16;

/// Compares the revision of a key's last change with a number, for equality.
const MOD: i32 = 2;

#[derive(Clone, PartialEq, Message)]
struct Compare {
    #[prost(int32, tag = "2")]
    target: i32,
    #[prost(bytes = "vec", tag = "3")]
    key: Vec<u8>,
    // Of a oneof in etcd's own file, where 0 is sent too.
    #[prost(int64, optional, tag = "6")]
    mod_revision: Option<i64>,
}

#[derive(Clone, PartialEq, Message)]
struct Put {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
    #[prost(bytes = "bytes", tag = "2")]
    value: Bytes,
}

#[derive(Clone, PartialEq, Message)]
struct Operation {
    #[prost(message, optional, tag = "2")]
    put: Option<Put>,
}

#[derive(Clone, PartialEq, Message)]
struct Transaction {
    #[prost(message, repeated, tag = "1")]
    compare: Vec<Compare>,
    #[prost(message, repeated, tag = "2")]
    success: Vec<Operation>,
}

#[derive(Clone, PartialEq, Message)]
struct Header {
    #[prost(int64, tag = "3")]
    revision: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Answer {
    #[prost(message, optional, tag = "1")]
    header: Option<Header>,
    #[prost(bool, tag = "2")]
    succeeded: bool,
}

pub struct Etcd {
    channel: Channel,
    /// Of each transaction.
    revisions: Vec<i64>,
}

impl Etcd {
    pub async fn connect(address: &str) -> Self {
        let endpoint = Endpoint::from_shared(format!("http://{address}")).expect("an address");
        Self {
            channel: endpoint.connect().await.expect("a server"),
            revisions: Vec::new(),
        }
    }
}

#[async_trait]
impl Plain for Etcd {
    async fn write(&mut self, writes: &[(String, Bytes)]) {
        self.revisions.resize(writes.len().div_ceil(WRITES), 0);
        let transactions: Vec<Transaction> = writes
            .chunks(WRITES)
            .zip(&self.revisions)
            .map(|(writes, revision)| transaction(writes, *revision))
            .collect();
        let channel = &self.channel;
        self.revisions = stream::iter(transactions)
            .map(|transaction| send(channel.clone(), transaction))
            .buffered(AT_ONCE)
            .collect()
            .await;
    }
}

fn transaction(writes: &[(String, Bytes)], revision: i64) -> Transaction {
    let keys = writes
        .iter()
        .map(|(key, value)| (format!("plain/{key}").into_bytes(), value));
    let (compare, success) = keys
        .map(|(key, value)| {
            let compare = Compare {
                target: MOD,
                key: key.clone(),
                mod_revision: Some(revision),
            };
            let value = value.clone();
            let put = Some(Put { key, value });
            (compare, Operation { put })
        })
        .unzip();
    Transaction { compare, success }
}

async fn send(channel: Channel, transaction: Transaction) -> i64 {
    let mut grpc = Grpc::new(channel);
    grpc.ready().await.expect("a connection");
    let path = PathAndQuery::from_static("/etcdserverpb.KV/Txn");
    let codec = ProstCodec::<Transaction, Answer>::default();
    let answer = grpc
        .unary(tonic::Request::new(transaction), path, codec)
        .await
        .expect("an answer")
        .into_inner();
    assert!(answer.succeeded, "nobody else writes here");
    answer.header.expect("a header").revision
}
