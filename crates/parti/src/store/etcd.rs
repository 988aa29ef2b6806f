//! The store on etcd v3.
