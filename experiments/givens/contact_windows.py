"""The contacts of the primary school in windows, or simulated ones that need no file."""

import numpy as np

from geodax.app.network.contacts import ContactWindows, primary_school

COLOURS = ("#2b6cb0", "#dd6b20", "#2f855a")
STATES = ("out of school", "in class", "lunch and breaks")


def counted(data: str, minutes: float, num_windows: int = 12) -> ContactWindows:
    """Counts between classes in windows.

    Args:
        data: "primary-school", or "simulated".
        minutes: Length of a window.
        num_windows: Of the simulation.

    Returns:
        The counts.
    """
    if data == "primary-school":
        return primary_school(minutes=minutes)
    generator = np.random.default_rng(0)
    means = np.array([0.05, 3.0, 10.0])[np.arange(num_windows) // 4 % 3]
    counts = generator.poisson(means[:, None, None], (num_windows, 6, 6)).astype(float)
    counts = np.triu(counts) + np.swapaxes(np.triu(counts, 1), 1, 2)
    return ContactWindows(counts, tuple("ABCDEF"), 60 * minutes * np.arange(num_windows), 60 * minutes)


def state_name(state: int, number_of_states: int) -> str:
    """What a state of the primary school is called; numbers for other numbers of states."""
    return STATES[state] if number_of_states == len(STATES) else f"state {state + 1}"
