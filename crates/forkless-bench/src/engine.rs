//! Runs several methods so that they can be compared. After a warm-up come rounds: in each, every
//! method has one turn, in an order drawn anew. A disturbance of the machine that lasts a while
//! then meets all methods alike.
//!
//! A method's turn is a few repetitions, the first of which is not counted: it finds the caches,
//! the page tables and the branch predictors as another method left them.

use std::time::{Duration, Instant};

use rand::SeedableRng as _;
use rand::seq::SliceRandom as _;
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::error::Error;
use crate::stats::bootstrap::Samples;

/// Something to measure: it fills one or more series, the same ones every turn.
pub trait Arm {
    /// Repeats the work: `settle` times uncounted, then `counted` times, adding at least one value
    /// to every series of `turn`.
    ///
    /// # Errors
    /// Ends the whole run.
    fn turn(&mut self, settle: usize, counted: usize, turn: &mut Turn) -> Result<(), Error>;

    /// How many series a turn fills.
    fn series(&self) -> usize;
}

/// What one turn of an [`Arm`] gave.
#[derive(Debug, Clone, Default)]
pub struct Turn {
    series: Vec<Vec<f64>>,
    lost: Duration,
}

impl Turn {
    pub(crate) fn with_series(count: usize) -> Turn {
        // Room for the whole turn: growing would allocate between two timed repetitions.
        let series = (0..count).map(|_| Vec::with_capacity(256)).collect();
        Turn { series, lost: Duration::ZERO }
    }

    /// The values of every series.
    pub(crate) fn into_series(self) -> Vec<Vec<f64>> {
        self.series
    }

    /// Adds a value to a series.
    pub fn add(&mut self, series: usize, value: f64) {
        self.series[series].push(value);
    }

    /// Says that so much time was lost, and is none of the measurement's.
    pub(crate) fn lose(&mut self, time: Duration) {
        self.lost += time;
    }
}

/// How long and how densely to measure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Schedule {
    /// Counted repetitions of a method fast enough to take all of its turns in full.
    pub runs: usize,
    /// Stop at the end of the first round after this time.
    pub time: Option<Duration>,
    /// Rounds that are taken even if they take longer than that.
    pub least_rounds: usize,
    /// Decides the order of methods in each round.
    pub seed: u64,
    /// Counted repetitions a turn, at most.
    pub per_turn: usize,
    /// A method slower than this over a whole turn takes fewer repetitions a turn.
    pub turn_budget: Duration,
}

impl Default for Schedule {
    fn default() -> Schedule {
        Schedule {
            runs: 3000,
            time: None,
            least_rounds: 1,
            seed: 1,
            per_turn: 5,
            turn_budget: Duration::from_millis(10),
        }
    }
}

/// Told how a run goes.
pub trait Observer {
    /// `done` of `total` rounds are finished; the total may shrink when time runs out.
    fn progress(&mut self, done: usize, total: usize);

    /// Something a reader of the result should know now.
    fn note(&mut self, text: &str);
}

/// An observer that ignores everything.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl Observer for Silent {
    fn progress(&mut self, _done: usize, _total: usize) {}
    fn note(&mut self, _text: &str) {}
}

/// What a run gave.
#[derive(Debug, Clone, PartialEq)]
pub struct Measured {
    /// For every arm, in the order given, its series.
    pub series: Vec<Vec<Samples>>,
    /// Rounds finished.
    pub rounds: usize,
    /// Rounds the schedule asked for.
    pub planned: usize,
    /// Time all rounds took, warm-up excluded.
    pub elapsed: Duration,
}

/// Warms every arm up, finds out how long a repetition takes, and runs the rounds.
///
/// An arm that is interrupted ends the run: what whole rounds gave is the result.
///
/// # Errors
/// The first error of any arm but [`Error::Interrupted`]; [`Error::Spec`] when nothing is to be
/// measured.
pub fn run(
    arms: &mut [Box<dyn Arm + '_>],
    schedule: &Schedule,
    observer: &mut dyn Observer,
) -> Result<Measured, Error> {
    if arms.is_empty() || schedule.runs == 0 || schedule.per_turn == 0 {
        return Err(Error::Spec(
            "nothing to measure: the filter leaves nothing, or no run was asked for".into(),
        ));
    }
    let mut turns: Vec<Turn> = arms.iter().map(|arm| Turn::with_series(arm.series())).collect();
    let planned = schedule.runs.div_ceil(schedule.per_turn).max(1);
    let mut outcome = Measured {
        series: arms.iter().map(|arm| vec![Samples::default(); arm.series()]).collect(),
        rounds: 0,
        planned,
        elapsed: Duration::ZERO,
    };
    let mut paces = Vec::with_capacity(arms.len());
    for (arm, turn) in arms.iter_mut().zip(&mut turns) {
        match warm_up(arm.as_mut(), turn, schedule) {
            Err(Error::Interrupted) => return Ok(outcome),
            pace => paces.push(pace?),
        }
    }
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(schedule.seed);
    let mut order: Vec<usize> = (0..arms.len()).collect();
    let (start, mut lost) = (Instant::now(), Duration::ZERO);
    turns.iter_mut().for_each(|turn| turn.lost = Duration::ZERO);
    let a_round = paces.iter().map(|pace: &Pace| pace.turn).sum();
    observer.progress(0, schedule.expected(planned, a_round));
    for round in 0..planned {
        order.shuffle(&mut rng);
        let turned = order.iter().try_for_each(|&index| {
            let Pace { settle, counted, .. } = paces[index];
            arms[index].turn(settle, counted, &mut turns[index])
        });
        match turned {
            Err(Error::Interrupted) => break,
            turned => turned?,
        }
        // A round counts as a whole: series of different lengths could not be compared.
        for (series, turn) in outcome.series.iter_mut().zip(&mut turns) {
            for (samples, values) in series.iter_mut().zip(&mut turn.series) {
                samples.push_round(values.drain(..));
            }
        }
        outcome.rounds = round + 1;
        lost += turns.iter_mut().map(|turn| std::mem::take(&mut turn.lost)).sum::<Duration>();
        outcome.elapsed = start.elapsed().saturating_sub(lost);
        let a_round = outcome.elapsed / u32::try_from(outcome.rounds).unwrap_or(u32::MAX);
        observer.progress(outcome.rounds, schedule.expected(planned, a_round).max(outcome.rounds));
        let is_over = schedule.time.is_some_and(|limit| outcome.elapsed >= limit);
        if is_over && outcome.rounds >= schedule.least_rounds {
            break;
        }
    }
    Ok(outcome)
}

impl Schedule {
    /// How many rounds there will be, if each takes so long.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "an estimate of a number of rounds"
    )]
    fn expected(&self, planned: usize, a_round: Duration) -> usize {
        let Some(time) = self.time else { return planned };
        let fitting = time.as_secs_f64() / a_round.as_secs_f64().max(1e-9);
        planned.min((fitting.ceil() as usize).max(self.least_rounds))
    }
}

/// How an arm takes its turns.
#[derive(Debug, Clone, Copy)]
struct Pace {
    /// Uncounted repetitions a turn.
    settle: usize,
    /// Counted repetitions a turn.
    counted: usize,
    /// How long a turn lasts.
    turn: Duration,
}

/// Warms one arm up, and finds its pace.
fn warm_up(arm: &mut dyn Arm, turn: &mut Turn, schedule: &Schedule) -> Result<Pace, Error> {
    let mut pace = Duration::ZERO;
    // The first repetition pays for first-touch faults and lazy binding, and speculative forks
    // learn from the first three; the last one stands for the rest.
    for _ in 0..4 {
        let start = Instant::now();
        arm.turn(0, 1, turn)?;
        pace = start.elapsed();
        for series in &mut turn.series {
            series.clear();
        }
        if pace > schedule.turn_budget * 10 {
            break;
        }
    }
    let fitting = schedule.turn_budget.as_nanos() / pace.as_nanos().max(1);
    let counted = usize::try_from(fitting).unwrap_or(usize::MAX).clamp(1, schedule.per_turn);
    // For a method that fills its turn with one repetition, what the others left behind no longer
    // shows.
    let settle = usize::from(counted > 1);
    let repetitions = u32::try_from(settle + counted).unwrap_or(u32::MAX);
    Ok(Pace { settle, counted, turn: pace.saturating_mul(repetitions) })
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use super::*;

    type Log = Rc<RefCell<Vec<(usize, usize, usize)>>>;

    struct Fake {
        id: usize,
        nap: Duration,
        log: Log,
    }

    impl Arm for Fake {
        fn turn(&mut self, settle: usize, counted: usize, turn: &mut Turn) -> Result<(), Error> {
            self.log.borrow_mut().push((self.id, settle, counted));
            std::thread::sleep(self.nap);
            for _ in 0..counted {
                turn.add(0, 1.0);
            }
            turn.add(1, 2.0);
            Ok(())
        }
        fn series(&self) -> usize {
            2
        }
    }

    fn fakes(naps: &[Duration], log: &Log) -> Vec<Box<dyn Arm>> {
        let arm = |(id, &nap)| Box::new(Fake { id, nap, log: log.clone() }) as Box<dyn Arm>;
        naps.iter().enumerate().map(arm).collect()
    }

    #[test]
    fn every_method_has_one_turn_a_round_in_an_order_that_changes() {
        let log = Log::default();
        let mut arms = fakes(&[Duration::ZERO; 3], &log);
        let outcome = run(&mut arms, &Schedule { runs: 100, ..Schedule::default() }, &mut Silent).unwrap();
        assert_eq!((outcome.rounds, outcome.planned), (20, 20));
        assert_eq!(outcome.series[2][0].values.len(), 100);
        assert_eq!(outcome.series[2][1].rounds, vec![1; 20]);
        let log = log.borrow();
        let measured: Vec<usize> = log[12..].iter().map(|entry| entry.0).collect();
        let rounds: Vec<&[usize]> = measured.chunks(3).collect();
        for round in &rounds {
            let mut sorted = round.to_vec();
            sorted.sort_unstable();
            assert_eq!(sorted, [0, 1, 2]);
        }
        assert!(rounds.windows(2).any(|pair| pair[0] != pair[1]));
    }

    #[test]
    fn the_seed_decides_the_order() {
        let order = |seed| {
            let log = Log::default();
            let mut arms = fakes(&[Duration::ZERO; 4], &log);
            run(&mut arms, &Schedule { runs: 50, seed, ..Schedule::default() }, &mut Silent).unwrap();
            let log = log.borrow().clone();
            log.into_iter().map(|entry| entry.0).collect::<Vec<_>>()
        };
        assert_eq!(order(5), order(5));
        assert_ne!(order(5), order(6));
    }

    #[test]
    fn a_slow_method_takes_shorter_turns_and_no_settling_repetition() {
        let log = Log::default();
        let mut arms = fakes(&[Duration::ZERO, Duration::from_millis(11)], &log);
        run(&mut arms, &Schedule { runs: 10, ..Schedule::default() }, &mut Silent).unwrap();
        let log = log.borrow();
        assert!(log.contains(&(0, 1, 5)));
        assert!(log[8..].iter().all(|entry| entry.0 == 0 || entry.1 == 0 && entry.2 == 1));
    }

    #[test]
    fn time_ends_a_run_at_a_whole_round() {
        let log = Log::default();
        let mut arms = fakes(&[Duration::from_millis(2); 2], &log);
        let schedule =
            Schedule { runs: 1_000_000, time: Some(Duration::from_millis(30)), ..Schedule::default() };
        let outcome = run(&mut arms, &schedule, &mut Silent).unwrap();
        assert!(outcome.rounds < outcome.planned);
        assert_eq!(outcome.series[0][1].rounds.len(), outcome.rounds);
        assert_eq!(outcome.series[1][1].rounds.len(), outcome.rounds);
    }

    #[test]
    fn the_least_rounds_are_taken_however_long_they_last() {
        let log = Log::default();
        let mut arms = fakes(&[Duration::from_millis(2)], &log);
        let time = Some(Duration::from_millis(1));
        let schedule = Schedule { runs: 100, per_turn: 1, least_rounds: 6, time, ..Schedule::default() };
        assert_eq!(run(&mut arms, &schedule, &mut Silent).unwrap().rounds, 6);
    }

    #[test]
    fn the_expected_rounds_are_those_that_fit() {
        let schedule =
            Schedule { time: Some(Duration::from_secs(1)), least_rounds: 6, ..Schedule::default() };
        let expected = |milliseconds| schedule.expected(100, Duration::from_millis(milliseconds));
        assert_eq!([expected(0), expected(1), expected(100), expected(10_000)], [100, 100, 10, 6]);
        assert_eq!(Schedule::default().expected(100, Duration::from_secs(9)), 100);
    }

    /// Interrupted in so many turns.
    struct Interrupted(usize);

    impl Arm for Interrupted {
        fn turn(&mut self, _settle: usize, counted: usize, turn: &mut Turn) -> Result<(), Error> {
            self.0 = self.0.checked_sub(1).ok_or(Error::Interrupted)?;
            (0..counted).for_each(|_| turn.add(0, 1.0));
            Ok(())
        }
        fn series(&self) -> usize {
            1
        }
    }

    #[test]
    fn an_interrupted_run_keeps_its_whole_rounds() {
        let schedule = Schedule { runs: 10, per_turn: 1, turn_budget: Duration::ZERO, ..Schedule::default() };
        for (turns, rounds) in [(0, 0), (1, 0), (3, 2)] {
            let mut arms: Vec<Box<dyn Arm>> = vec![Box::new(Interrupted(99)), Box::new(Interrupted(turns))];
            let outcome = run(&mut arms, &schedule, &mut Silent).unwrap();
            assert_eq!(outcome.rounds, rounds);
            assert!(outcome.series.iter().all(|series| series[0].values.len() == rounds));
        }
    }

    #[test]
    fn nothing_to_measure_is_an_error() {
        assert!(run(&mut [], &Schedule::default(), &mut Silent).is_err());
    }
}
