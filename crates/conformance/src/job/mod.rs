//! The cases of the job contract, one file a theme. Each is named as the promise that it checks; its number stands
//! beside it (P: the promises; R: the races).

mod cancel;
mod claim;
mod clocks;
mod compensation;
mod enqueue;
mod events;
mod expiry;
mod fixture;
mod force;
mod input;
mod ledger;
mod limits;
mod list;
mod namespaces;
mod operation;
mod preemption;
mod queues;
mod renew;
mod report;
mod restart;
mod rewound;
mod schedule;
mod secrets;
mod waiting;

use super::{Case, need};

/// What all the cases speak of.
mod prelude {
    pub(super) use fencehold_contract::job::{
        AttemptLedgerEntry, AttemptRef, AttemptReport, BeginOperationRequest, ChangeJobBatchResponse,
        ChangeJobsRequest, ClaimJobsRequest, CompensatedEffect, EffectResolution, EnqueuedJob, FindingKind,
        JobAction, JobCounts, JobDetail, JobFilter, JobSelector, LedgerEntry, LedgerResponse,
        ListJobsRequest, NewJob, OperationStatus, QueueMode, Report, ResolveEffectRequest, ScheduleSpec,
        ScheduleView, SetQueueModeRequest, When,
    };
    pub(super) use fencehold_contract::{Quota, StoreError};
    pub(super) use fencehold_core::job::{
        AttemptOutcome, CompensationState, JobId, JobOptions, JobRefusal, JobState, QueueName,
        ReportedAttempt, ScheduleName, UniqueKey,
    };
    pub(super) use fencehold_core::ledger::{Compensation, EffectState, InDoubtPolicy};
    pub(super) use fencehold_core::limits::{
        CHECKPOINT_BYTES_MAX, CRASH_SPREAD_MS, CRASHES_AT_ONCE_MAX, DELAY_MS_MAX, EFFECT_VALUE_BYTES_MAX,
        EFFECTS_BYTES_MAX, EFFECTS_PER_JOB_MAX, ERROR_BYTES_KEPT, FINISHED_KEPT_MS, JOBS_PER_CALL_MAX,
        JSON_DEPTH_MAX, LABELS_MAX, PAGE_MAX, PAYLOAD_BYTES_MAX, PROGRESS_BYTES_MAX, QUEUES_PER_CLAIM_MAX,
        RUN_AT_WALL_MS_MAX, TTL_MS_MAX, UNIQUE_WINDOW_MS_MAX, WAIT_MS_MAX,
    };
    pub(super) use fencehold_core::{BlockedAction, Event, EventData, HoldId, Reason, Token};
    pub(super) use fencehold_test_store::TestCapability;

    pub(super) use super::fixture::{
        ClaimedWork, IN_DOUBT, PROCEED, RETRY_MS, assert_over, assert_stale, completed, effect, failed,
        fresh_id, jobs_of, kind, label, only, queue, terms, unique, works,
    };
    pub(super) use crate::concurrent::{PendingCall, at_once};
    pub(super) use crate::fixture::{Fixture, SECRETS, assert_no_secret_in, fresh_hold, owner, until};
}

/// Every case by theme, handed to a macro. The one list: the tests and the registry are both made from it, and a case
/// that is missing here is dead code. Behind its name stands what it needs (`need.rs`).
#[doc(hidden)]
#[macro_export]
macro_rules! job_cases {
    ([$($then:tt)*]) => {
        $($then)*! {
            enqueue {
                a_job_stands_in_its_queue_with_all_that_was_said
                the_same_id_makes_one_job
                an_id_that_is_taken_by_another_payload_is_a_conflict
                the_same_unique_key_makes_one_job
                a_unique_key_with_another_payload_is_a_conflict_that_names_the_first_job
                a_conflict_says_what_differs
                how_a_payload_was_written_does_not_matter
                a_unique_key_is_free_again_after_its_window [MovesTime]
                a_unique_key_is_taken_while_its_job_lives [MovesTime]
                a_job_that_goes_on_has_its_unique_key_again [MovesTime]
                a_deleted_job_frees_its_unique_key
                a_job_for_later_is_ready_when_its_time_has_come [MovesTime StandsStill]
                a_job_for_the_past_is_ready_at_once
                a_job_for_a_moment_goes_by_the_wall_clock [MovesTime MovesWall]
                a_bad_item_costs_the_good_ones_nothing
                the_same_unique_key_many_times_at_once_makes_one_job
            }
            clocks {
                a_job_that_is_ready_stays_ready_when_the_wall_clock_is_set_back [MovesTime MovesWall]
                a_delay_is_elapsed_time [MovesTime MovesWall StandsStill]
                the_window_of_a_unique_key_is_elapsed_time [MovesTime MovesWall]
                a_schedule_goes_on_after_the_wall_clock_was_ahead [MovesTime MovesWall]
                finished_jobs_are_kept_for_elapsed_time [MovesTime MovesWall]
            }
            claim {
                a_claim_hands_over_all_that_a_handler_needs
                every_attempt_has_a_token_of_its_own
                jobs_are_claimed_by_priority_and_then_in_order
                a_claim_takes_no_more_than_its_limit
                a_claim_takes_only_from_its_own_queues
                queues_take_turns_by_their_weights
                the_same_claim_again_gets_the_same_jobs_with_the_time_that_remains
                the_same_claim_again_gets_only_what_it_still_has
                the_same_claim_again_after_all_its_jobs_ended_gets_nothing [RemembersClaims]
                a_repetition_that_is_not_read_takes_no_claim_away
                the_same_claim_many_times_at_once_takes_its_jobs_once
                a_claim_of_large_jobs_is_cut_short_and_never_refused
                jobs_that_carry_much_are_claimed_a_few_at_a_time
                the_largest_job_that_can_be_stored_can_be_claimed_and_read
                the_largest_batches_go_through
                one_job_goes_to_one_of_many
                many_jobs_pass_through_many_hands_each_once
            }
            waiting {
                one_who_waits_is_given_the_first_job_that_comes [WaitQueue]
                a_claim_says_how_long_it_stood_in_line [WaitQueue MovesTime]
                those_who_wait_are_served_in_order [FairQueue]
                one_whose_time_is_up_is_given_nothing [WaitQueue MovesTime]
                one_who_waits_is_served_until_its_time_is_up_and_not_at_it [WaitQueue MovesTime StandsStill]
                jobs_that_nobody_picks_up_go_back_at_once [WaitQueue NoticesLeaving]
                one_that_gives_up_leaves_no_orphan [WaitQueue NoticesLeaving]
                one_that_leaves_the_line_is_passed_over [WaitQueue NoticesLeaving]
                the_same_claim_again_keeps_its_place_in_line [FairQueue MovesTime]
            }
            renew {
                a_renewal_keeps_token_and_ttl
                many_renewals_are_answered_each_and_in_order
                a_renewal_never_revives_an_attempt_that_is_over
                a_hand_back_beats_heartbeats_under_way
                a_claim_that_ran_out_is_not_renewed [MovesTime]
                a_late_renewal_steals_nothing_back [MovesTime]
                a_reused_worker_name_adopts_nothing
                a_sweep_never_ends_a_claim_that_was_renewed_in_time [MovesTime]
                a_stale_sweep_leaves_the_next_holder_alone [MovesTime]
                the_time_limit_of_an_attempt_ends_its_renewals [MovesTime StandsStill]
                a_wall_clock_that_jumps_decides_nothing_about_a_claim [MovesTime MovesWall]
            }
            report {
                a_completed_job_keeps_its_result
                the_same_completion_twice_gets_the_same_answer
                the_same_completion_twice_in_one_call_happens_once
                another_completion_is_a_conflict_that_says_so
                a_failure_after_a_completion_changes_nothing
                a_completion_after_a_failure_is_refused
                a_failed_job_is_tried_again_until_its_attempts_are_used_up [MovesTime StandsStill]
                a_holder_may_say_when_to_try_again_and_whether
                an_error_that_is_too_long_is_cut_off
                a_snoozed_job_comes_back_and_nothing_is_counted [MovesTime StandsStill]
                a_job_that_is_handed_back_stands_at_its_old_place
                the_same_word_again_is_heard_after_the_job_has_moved_on
                a_job_that_comes_back_stands_at_its_old_place [MovesTime]
                a_checkpoint_reaches_the_next_attempt
                progress_is_shown
                many_reports_are_answered_each_and_in_order
                every_wrong_speaker_has_its_own_error
            }
            expiry {
                a_crashed_job_comes_back_to_its_original_place [MovesTime StandsStill]
                a_crashed_job_comes_back_at_once_where_few_crash [MovesTime StandsStill]
                a_crashed_job_stays_away_from_the_end_of_its_claim [MovesTime]
                a_dead_holders_job_goes_to_one_who_waits [WaitQueue MovesTime]
                a_poison_job_is_quarantined [MovesTime]
                crashes_are_not_failures [MovesTime]
                a_completion_after_expiry_that_nobody_took_is_accepted_as_late [MovesTime]
                a_late_completion_brings_a_job_out_of_quarantine [MovesTime]
                a_late_failure_counts_as_a_failure_and_not_as_a_crash [MovesTime]
                a_completion_after_takeover_is_stale [MovesTime]
                a_write_that_was_refused_elsewhere_under_a_claim_is_recorded_unless_it_is_live [MovesTime TellsEvents]
                the_first_of_two_attempts_of_one_worker_is_stale [MovesTime]
                a_late_completion_against_a_claim_has_one_winner [MovesTime]
                nobody_is_late_after_an_operator_has_decided [MovesTime]
                one_who_is_late_may_leave_a_checkpoint_and_little_else [MovesTime]
                two_claimers_and_a_sweep_find_one_job_and_one_token [MovesTime]
                a_mass_expiry_is_spread_and_starves_nobody [MovesTime StandsStill]
                what_ran_out_in_an_outage_is_spread_from_its_end [MovesTime StandsStill]
            }
            cancel {
                a_job_that_nobody_holds_is_cancelled_at_once
                a_holder_learns_of_a_cancellation_at_its_next_renewal
                a_cancelled_job_whose_holder_dies_is_cancelled [MovesTime]
                a_completion_beats_a_request_to_cancel
                cancel_and_complete_at_once_have_one_end
                cancelling_now_fences_the_holder_out
                a_holder_hears_of_a_cancellation_at_once [TellsHolders]
                a_retry_starts_over_all_but_what_is_done
                a_running_job_is_deleted_only_by_force
                a_job_that_nobody_holds_can_be_deleted
            }
            force {
                a_job_that_was_ended_by_force_fences_its_holder_out
                a_job_that_no_one_holds_is_completed_by_force
                no_late_report_changes_what_was_ended_by_force [MovesTime]
                what_has_ended_is_not_failed_by_force
                an_intent_outlives_a_completion_by_force
                force_and_a_completion_at_once_have_one_end
                what_was_done_by_force_is_on_record [TellsEvents]
            }
            ledger {
                a_recorded_effect_is_there_for_every_later_attempt
                the_first_record_of_an_effect_stands
                an_effect_that_is_recorded_many_times_at_once_has_one_value
                a_stale_attempt_writes_nothing_into_the_ledger
                an_open_intent_is_run_again_where_its_policy_says_so [MovesTime]
                an_open_intent_stops_the_job_where_its_policy_says_so [MovesTime]
                a_withdrawn_intent_leaves_nothing_in_doubt
                a_person_settles_a_doubt_and_the_job_goes_on [MovesTime]
                a_late_outcome_settles_a_doubt [MovesTime]
                many_entries_are_answered_each_and_in_order
                a_job_has_a_bounded_number_of_effects
            }
            compensation {
                effects_are_undone_last_one_first_and_each_once
                a_failed_undo_stops_the_chain_until_it_is_retried
                an_undo_job_whose_holder_dies_is_tried_again [MovesTime]
                a_job_that_is_done_or_tried_again_undoes_nothing
                a_job_cancelled_between_two_effects_is_undone_when_its_attempt_has_ended
                a_job_cancelled_now_is_undone_and_its_open_intent_is_shown
                a_cancelled_job_whose_holder_dies_is_undone [MovesTime]
                a_job_that_is_being_undone_is_neither_retried_nor_deleted
                an_undo_job_stands_in_its_jobs_queue_unless_told_otherwise
                undoing_one_job_leaves_another_alone
            }
            operation {
                an_operation_is_new_then_in_progress_then_done
                in_a_full_namespace_the_same_beginning_has_the_same_operation [Limits]
                the_same_beginning_again_has_the_same_operation
                a_repetition_that_is_not_read_takes_no_operation_away
                a_key_with_another_payload_is_a_conflict
                an_operation_is_the_same_however_its_payload_was_written
                an_operation_that_failed_for_good_says_so
                an_operation_whose_holder_died_is_new_again [MovesTime]
                an_operation_whose_holder_died_is_indeterminate_where_its_policy_says_so [MovesTime]
                an_operation_that_was_given_back_is_new_again
                an_operation_in_doubt_is_listed_until_a_person_resolves_it [MovesTime]
                an_operation_that_someone_reported_on_leaves_no_doubt
                an_operation_that_many_begin_at_once_is_ones
                a_key_is_remembered_for_its_window [MovesTime]
                operations_cannot_be_claimed
            }
            queues {
                a_paused_queue_hands_nothing_out
                a_claim_passes_over_a_paused_queue
                a_resumed_queue_serves_those_who_wait [WaitQueue]
                a_draining_queue_takes_no_new_jobs
                the_counts_of_a_queue_add_up [MovesTime]
                a_queue_shows_how_many_wait_for_its_jobs [WaitQueue NoticesLeaving]
                a_queue_that_only_claims_have_named_is_kept_nowhere
                a_queue_with_nothing_left_in_it_vanishes
                a_queue_that_is_still_used_stays
                a_queue_is_removed_when_it_is_empty_and_not_before
            }
            schedule {
                a_schedule_fires_once_at_its_moment [MovesTime StandsStill]
                what_was_missed_is_fired_once [MovesTime]
                a_wall_clock_set_back_fires_nothing_twice [MovesTime MovesWall]
                the_same_schedule_set_by_many_fires_once [MovesTime]
                a_schedule_can_be_changed_and_removed [MovesTime]
                a_bad_cron_line_says_which_field_is_wrong
                a_schedule_of_bad_jobs_is_refused
                a_schedule_fires_whatever_another_namespace_has_taken [MovesTime StandsStill]
            }
            list {
                a_list_shows_what_its_filters_ask_for
                a_list_says_what_a_look_says [StandsStill]
                pages_show_every_job_once_and_in_order
                a_dry_run_does_nothing
                an_action_on_all_that_match_reaches_all_and_no_other
                one_who_waits_for_a_job_is_told_its_end
                one_who_waits_for_a_job_is_told_that_only_a_person_can_help [MovesTime]
                one_who_waited_long_enough_is_told_how_it_stands [MovesTime]
                finished_jobs_are_forgotten_after_their_time [MovesTime]
                a_finished_job_is_kept_while_its_unique_key_is_taken [MovesTime]
            }
            preemption {
                a_holder_learns_at_its_renewal_that_it_should_yield [Preemption]
                a_holder_that_does_not_yield_is_ended_and_nothing_is_counted [Preemption MovesTime StandsStill]
                nobody_yields_to_an_equal_or_to_one_who_does_not_ask [Preemption]
                a_notice_is_withdrawn_when_its_contender_needs_no_room [Preemption]
            }
            events {
                events_tell_a_jobs_story_in_order [TellsEvents MovesTime StandsStill]
                what_operators_do_is_on_record [TellsEvents]
                crashes_and_alarms_are_on_record [TellsEvents MovesTime]
                an_enqueue_that_is_repeated_is_told_once [TellsEvents]
            }
            namespaces {
                the_same_queue_in_two_namespaces_is_two_queues
                a_job_of_another_namespace_is_unknown
                an_id_of_another_namespace_is_not_to_be_had
                a_token_of_another_namespace_names_no_job
                a_claim_means_nothing_in_another_namespace
                a_unique_key_is_its_namespaces_own
                events_of_another_namespaces_jobs_are_not_told [TellsEvents]
            }
            input {
                a_bad_job_is_refused_by_its_field
                what_is_within_its_bounds_is_taken
                a_bad_claim_is_refused
                a_batch_over_its_limit_is_refused_as_a_whole
                a_call_of_too_many_bytes_is_refused_as_a_whole
                a_bad_word_is_refused_and_the_attempt_goes_on
                json_that_is_nested_too_deeply_is_refused
                an_action_on_an_unknown_job_costs_the_others_nothing
            }
            limits {
                a_namespace_has_no_more_jobs_than_its_limit [Limits]
                a_namespace_has_no_more_bytes_queues_and_schedules_than_its_limits [Limits]
                a_claim_above_the_longest_ttl_of_its_namespace_is_refused [Limits]
            }
            rewound {
                after_an_advance_nothing_from_before_speaks_for_a_job [Advances MovesTime]
                an_advance_closes_the_queues_for_the_longest_ttl [Advances MovesTime]
                an_advance_closes_the_queues_of_a_namespace_for_its_own_longest_ttl [Advances MovesTime StandsStill]
            }
            restart {
                a_live_claim_survives_a_restart [Restarts]
                a_claim_in_flight_ends_on_time_after_a_restart [Restarts MovesTime]
                a_claim_that_ran_out_while_nobody_served_is_over [Restarts MovesTime]
                tokens_of_jobs_grow_over_a_restart [Restarts]
                jobs_in_every_state_survive_a_restart [Restarts StandsStill]
                the_order_of_jobs_survives_a_restart [Restarts]
                nothing_is_enqueued_twice_over_a_restart [Restarts]
                a_completion_gets_the_same_answer_after_a_restart [Restarts]
                a_chain_of_undo_jobs_goes_on_after_a_restart [Restarts]
                a_paused_queue_stays_paused_over_a_restart [Restarts]
                a_schedule_makes_up_for_downtime_once [Restarts MovesTime]
            }
            secrets {
                no_hold_id_is_in_anything_that_is_told_of_a_job
            }
        }
    };
}

macro_rules! registry {
    ($($theme:ident { $($name:ident $([$($need:ident)*])?)* })*) => {
        pub(super) const CASES: &[Case] = &[
            $($(Case {
                theme: stringify!($theme),
                name: stringify!($name),
                needs: &[&need::Jobs, $($(&need::$need),*)?],
                check: $theme::$name,
            },)*)*
        ];
    };
}

job_cases!([registry]);

#[doc(hidden)]
#[macro_export]
macro_rules! job_tests {
    ($($theme:ident { $($name:ident $([$($need:ident)*])?)* })*) => {
        $(mod $theme {
            $(#[test]
            fn $name() {
                $crate::check_job(&super::job_factory(), stringify!($theme), stringify!($name));
            })*
        })*
    };
}

/// Makes one `#[test]` of every case of the job contract, in one module a theme within the module `jobs`, run against
/// the arenas of a [`TestStoreFactory`](crate::TestStoreFactory).
#[macro_export]
macro_rules! job_conformance {
    ($factory:expr) => {
        mod jobs {
            use super::*;

            fn job_factory() -> impl $crate::TestStoreFactory {
                $factory
            }
            $crate::job_cases!([$crate::job_tests]);
        }
    };
}
