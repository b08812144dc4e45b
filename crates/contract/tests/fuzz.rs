//! Whatever is written where a store's URL, a cron line or a time zone belongs is read or refused, and nothing panics.

use fencehold_contract::StoreUrl;
use fencehold_core::job::schedule::{Cron, Zone};
use fencehold_test_servers::{Edit, edited};

const URLS: &[&[u8]] = &[
    b"memory:",
    b"file:/var/lib/app/leases",
    b"postgres://ada:secret@db.example.org:5433/app?sslmode=verify-full&schema=leases",
    b"etcd://ada:secret@10.0.0.1:2379,[::1]:2379/prefix?tls=on",
    b"s3://bucket/prefix?endpoint=http://127.0.0.1:9000&region=eu",
    b"gs://bucket/prefix",
    b"az://account/container/prefix",
    b"postgres://ada%40home@/a%2Fpp?host=/run/pg&keep_finished=30d",
    b"file:////srv//leases?keep_finished=90m",
    b"file:x?create=true",
    b"https://s3cret@fencehold.example.org:7117/below?ca=/etc/ca.pem",
    b"https://fencehold.example.org:7117?token_file=/run/token",
];

/// What a URL shows of itself names no password, and read again it shows the same. Only a user of etcd is not read without
/// the password that is not shown.
#[test]
fn a_url_is_read_or_refused_and_tells_no_secret() {
    bolero::check!().with_type::<(u8, Vec<Edit>)>().for_each(|(which, edits)| {
        let Ok(text) = String::from_utf8(edited(URLS, *which, edits)) else { return };
        let Ok(url) = text.parse::<StoreUrl>() else { return };
        let shown = url.to_string();
        if text.contains(":secret@") {
            assert!(!shown.contains("secret"), "{shown}");
        }
        match shown.parse::<StoreUrl>() {
            Ok(again) => assert_eq!(again.to_string(), shown, "{text:?}"),
            Err(error) => {
                let why = error.to_string();
                assert!(
                    shown.starts_with("etcd://") && why.contains("without a password"),
                    "{shown:?}: {why}"
                );
            }
        }
    });
}

const LINES: &[&[u8]] =
    &[b"*/15 0-6,22 1,15 JAN-MAR MON-FRI", b"0 0 29 2 *", b"@hourly", b"5-55/10 * * * 0", b"59 23 31 12 7"];
const ZONES: &[&[u8]] = &[b"Europe/Berlin", b"UTC", b"America/New_York", b"Antarctica/Troll"];

/// A line that is read has a next moment that lies in the future, or none at all.
#[test]
fn a_cron_line_is_read_or_refused_and_never_fires_in_the_past() {
    type Input = (u8, Vec<Edit>, u8, Vec<Edit>, u64);
    bolero::check!()
        .with_type::<Input>()
        .for_each(|(which, edits, zone, zone_edits, now_ms)| {
            let zone = String::from_utf8(edited(ZONES, *zone, zone_edits))
                .ok()
                .and_then(|name| Zone::parse(&name).ok());
            let Ok(line) = String::from_utf8(edited(LINES, *which, edits)) else { return };
            let Ok(cron) = Cron::parse(&line) else { return };
            let utc = Zone::parse("UTC").unwrap();
            for moment_ms in [*now_ms, now_ms % 4_102_444_800_000] {
                let next = cron.next_after(moment_ms, zone.as_ref().unwrap_or(&utc));
                assert!(next.is_none_or(|next| next > moment_ms), "{line} after {moment_ms}: {next:?}");
            }
        });
}
