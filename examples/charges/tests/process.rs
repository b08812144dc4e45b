//! Whole processes on one directory: one is killed, and the other goes on.

use process::Service;

#[test]
fn what_was_charged_is_remembered_when_the_process_is_killed() {
    let directory = tempfile::tempdir().unwrap();
    let store = format!("file:{}?create=true", directory.path().join("data").display());
    let start = || Service::start(env!("CARGO_BIN_EXE_charges"), &[("FENCEHOLD_STORE", &store)]);
    let charge = |service: &Service| {
        service.ask("POST", "/charges", "idempotency-key: order-17", r#"{"customer":"ada","cents":990}"#)
    };

    let (killed, other) = (start(), start());
    let (status, first) = charge(&killed);
    assert_eq!(status, 200, "{first}");
    killed.kill();
    assert_eq!(charge(&other), (200, first.clone()), "the stored answer");

    let (_, mail) = first.split_once(r#""mail":""#).unwrap();
    let path = format!("/mails/{}", mail.split('"').next().unwrap());
    while other.ask("GET", &path, "accept: */*", "").1 != r#""completed""# {}
    assert!(other.stop().success());
}
