//! The few messages of OTLP that spans need, written by hand: field numbers never change, and what a receiver does not
//! find it takes for empty.

use prost::{Message, Oneof};

/// Each row is a field: its name, its type, and how protobuf has it.
macro_rules! messages {
    ($($name:ident { $($field:ident: $type:ty = $form:tt;)* })*) => {
        $(#[derive(Clone, PartialEq, Message)]
        pub(super) struct $name {
            $(#[prost $form] pub(super) $field: $type,)*
        })*
    };
}

messages! {
    ExportRequest {
        resource_spans: Vec<ResourceSpans> = (message, repeated, tag = "1");
    }
    ResourceSpans {
        resource: Option<OtlpResource> = (message, optional, tag = "1");
        scope_spans: Vec<ScopeSpans> = (message, repeated, tag = "2");
    }
    OtlpResource {
        attributes: Vec<KeyValue> = (message, repeated, tag = "1");
    }
    ScopeSpans {
        scope: Option<OtlpScope> = (message, optional, tag = "1");
        spans: Vec<OtlpSpan> = (message, repeated, tag = "2");
    }
    OtlpScope {
        name: String = (string, tag = "1");
        version: String = (string, tag = "2");
    }
    OtlpSpan {
        trace_id: Vec<u8> = (bytes = "vec", tag = "1");
        span_id: Vec<u8> = (bytes = "vec", tag = "2");
        parent_span_id: Vec<u8> = (bytes = "vec", tag = "4");
        name: String = (string, tag = "5");
        kind: i32 = (int32, tag = "6");
        start_time_unix_nano: u64 = (fixed64, tag = "7");
        end_time_unix_nano: u64 = (fixed64, tag = "8");
        attributes: Vec<KeyValue> = (message, repeated, tag = "9");
        links: Vec<OtlpLink> = (message, repeated, tag = "13");
        status: Option<OtlpStatus> = (message, optional, tag = "15");
    }
    OtlpLink {
        trace_id: Vec<u8> = (bytes = "vec", tag = "1");
        span_id: Vec<u8> = (bytes = "vec", tag = "2");
    }
    OtlpStatus {
        message: String = (string, tag = "2");
        code: i32 = (int32, tag = "3");
    }
    KeyValue {
        key: String = (string, tag = "1");
        value: Option<AnyValue> = (message, optional, tag = "2");
    }
    AnyValue {
        value: Option<OtlpValue> = (oneof = "OtlpValue", tags = "1, 3");
    }
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum OtlpValue {
    #[prost(string, tag = "1")]
    Text(String),
    #[prost(int64, tag = "3")]
    Number(i64),
}
