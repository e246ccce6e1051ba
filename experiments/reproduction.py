"""Every table and figure of the four papers: what it shows, where ours stands beside it, and whether it has been run.

The pages of the documentation show the lists of :data:`PAPERS`; ``python -m experiments.render`` writes them, with the state
and the time of each experiment from its record.

    <!-- table: reproduction orthogonal_hmc -->
    <!-- end of table -->
"""

import dataclasses
from collections.abc import Mapping
from pathlib import Path

from experiments.common.experiment import RESULTS, Experiment, load, path_of
from experiments.common.rendering import table


@dataclasses.dataclass(frozen=True)
class Item:
    """A table or a figure of a paper.

    Attributes:
        name: Its name there.
        subject: What it shows.
        experiment: Name of the experiment that makes it again; None if nothing is measured in it.
        place: Page of the documentation where ours stands, with a heading's anchor.
        note: What differs, or why there is none of ours.
        cost: What a full run is expected to cost, where it has not been made; empty where there is nothing to run.
    """

    name: str
    subject: str
    experiment: str | None = None
    place: str | None = None
    note: str = ""
    cost: str = ""


_TOYS, _NETWORKS = "orthogonal-hmc-experiments.md", "sgrld-experiments.md"
_MNIST = f"{_NETWORKS}#dense-networks-on-mnist-tables-1-2-6-8-10"
_CIFAR = f"{_NETWORKS}#resnet-20-on-cifar-10-tables-3-7-9"
_ORTHOGONAL = f"{_NETWORKS}#orthogonal-networks-tables-4-and-5-of-yanush-and-kropotov"
_RANK = f"{_NETWORKS}#low-rank-tables-6-and-7-figure-3"
_MNIST_COST = "200 hours of a core for 10 seeds, of which N = 400 is a tenth"
_CIFAR_COST = "98 hours of a GPU for 10 seeds of each normalisation, at the paper's seconds an epoch"

PAPERS: Mapping[str, tuple[Item, ...]] = {
    "orthogonal_hmc": (
        Item("Table 1", "effective sample sizes on the mixture in QR coordinates", "orthogonal_hmc/table_1_2",
             f"{_TOYS}#the-mixture-in-qr-coordinates",
             "the volume element, absent in print, is in the density; the paper's settings are not known; its factor of two between "
             "oHMC and gHMC is not found at equal settings"),
        Item("Table 2", "seconds for 20,000 iterations", "orthogonal_hmc/table_1_2",
             f"{_TOYS}#short-trajectories-as-they-seem-to-have-been-in-the-paper", "compiled; other hardware"),
        Item("Figure 1", "draws of oHMC over the true density", "orthogonal_hmc/figure_1",
             f"{_TOYS}#trajectories-of-a-sensible-length-each-method-at-its-best-step-size", "agrees: all modes are visited"),
        Item("Table 3", "effective sample sizes with noisy gradients", "orthogonal_hmc/table_3",
             f"{_TOYS}#stochastic-gradients",
             "no setting separates the methods as in print; on square matrices SGHMC in polar coordinates is biased"),
        Item("Figure 2", "draws of oHMC and oSGHMC", "orthogonal_hmc/figure_2", f"{_TOYS}#stochastic-gradients", "agrees"),
        Item("Table 4", "orthogonal network on MNIST", "orthogonal_hmc/table_4", _ORTHOGONAL,
             "friction, learning rate of training and priors are not given; the ensemble is better than one network only below temperature 1",
             "some hours of a core: 10 runs of 87,000 steps"),
        Item("Table 4, other readings", "the same with settings read otherwise", "orthogonal_hmc/table_4_readings", _ORTHOGONAL,
             "no reading gives the printed pair; chains that move less lose less", "2 hours of a core for the other seeds, minutes of a GPU"),
        Item("Table 5", "orthogonal VGG-16 on CIFAR-10", "orthogonal_hmc/table_5", _ORTHOGONAL,
             "batch normalisation with frozen statistics, flips and crops; beside it filter response normalisation and images as they are",
             "about 15 hours of a GPU for each of four arms: 10 runs of 150,000 steps"),
        Item("Table 6", "MovieLens-100k at rank 10", "orthogonal_hmc/table_6", _RANK,
             "split, learning rate and priors are not given; here the bottleneck trains better than the SVD, and averaging helps the SVD, as "
             "in print", "20 minutes for the other seeds"),
        Item("Figure 3", "losses of low-rank networks while they train", "orthogonal_hmc/table_7_figure_3", _RANK,
             "learning rate and batch size are not given; agrees: the SVD's loss falls faster and further",
             "about ten minutes of a core: 18 runs of 3,900 steps"),
        Item("Table 7", "accuracies of low-rank networks", "orthogonal_hmc/table_7_figure_3", _RANK,
             "agrees: at its best rate the SVD trains and tests better than the bottleneck", "with figure 3"),
    ),
    "givens": (
        Item("Figure 1", "a drawing of frames", None, None, "the README's picture has draws and a trajectory"),
        Item("Figure 2", "angles drawn without the volume element", None, "densities-and-measures.md",
             "an illustration; tests compare the volume element with determinants and its draws with exact moments"),
        Item("Figure 3", "a ReLU network with free weights and with unit vectors", "givens/figure_3",
             "unit-networks.md#figure-3-of-the-paper",
             "data and priors are not given; agrees for the ridge; a mean-field guide is still too narrow with unit vectors"),
        Item("Figure 4", "planes of the posterior around a classical one", "givens/figure_4", "parametrisations.md",
             "points are not published, drawn from the same distribution"),
        Item("Figure 5", "scales and angles of a plane", "givens/figure_5", "parametrisations.md",
             "the paper's range near the pole splits the mode; a turned chart does not"),
        Item("Figure 6", "graphical models", "givens/figure_6_7_8", "cca.md#the-model", "drawn"),
        Item("Figure 7", "shrinkage of groups' subspaces, hospital data", "givens/figure_6_7_8", "cca.md#the-papers-figures",
             "the data are not public: simulated in their sizes, and on wines"),
        Item("Figure 8", "angles between groups", "givens/figure_6_7_8", "cca.md#the-papers-figures", "as figure 7"),
        Item("Figures 7, 8", "on red wines by grade", "givens/figure_7_8_quality", "cca.md#red-wines-by-grade", "our addition"),
        Item("Figures 7, 8", "on wines by cultivar", "givens/figure_7_8_wine", "cca.md#wines-by-cultivar", "our addition"),
        Item("Figure 9", "rates of hidden states in a school", "givens/figure_9_10", "network-hmm.md#the-school-in-numbers",
             "10 classes and teachers, two days, where the paper has 12 and one; agrees in kind"),
        Item("Figure 10", "intervals, and probabilities of states", "givens/figure_9_10", "network-hmm.md#the-school-in-numbers",
             "the Poisson model does not fit the counts; one that does is shown as well"),
    ),
    "walsh_hadamard": (
        Item("Figure 1", "a diagram of the method", None, "methods/whvi.md", "equations instead"),
        Item("Figure 2", "error of the best approximation of a matrix", "walsh_hadamard/figure_2",
             "walsh-hadamard.md#which-posterior-a-layer-has", "agrees in figures; they tend to the zero matrix's error, which the paper does not say"),
        Item("Table 1", "list of data sets", "walsh_hadamard/classification", "walsh-hadamard.md#regression-and-classification",
             "our addition: the available classification sets; the regression sets are those of table 2",
             "hours of a core: fits of 50,500 steps"),
        Item("Table 2", "regression sets, one hidden layer", "walsh_hadamard/table_2", "walsh-hadamard.md#regression-and-classification",
             "the paper does not give the settings of noisy K-FAC",
             "some 17 hours of a core: 725 fits of 50,500 steps"),
        Item("Tables 3 to 5, figure 3", "architectures for CIFAR-10", "walsh_hadamard/cifar10", "walsh-hadamard.md#regression-and-classification",
             "filter response for batch normalisation, without which batches would make no posterior",
             "hours of a GPU: a fit of 50,500 steps for each network and method"),
        Item("Table 6", "complexity of Gaussian processes", None, "costs.md#variational-layers",
             "the printed order leaves out the product with the features"),
        Item("Figure 4", "Gaussian processes by random features", "walsh_hadamard/figure_4",
             "walsh-hadamard.md#gaussian-processes-with-few-parameters",
             "agrees with full covariance; with a diagonal one plain features catch up at 128 parameters, on four of five functions",
             "hours of a core: fits of 12,000 steps"),
        Item("Figure 5", "wider and deeper networks", "walsh_hadamard/figure_5_6", "walsh-hadamard.md#regression-and-classification",
             "the supplement names no sets", "hours of a core: fits of 50,500 steps"),
        Item("Figure 6", "their error during the optimisation", "walsh_hadamard/figure_5_6",
             "walsh-hadamard.md#regression-and-classification", "as figure 5", "with figure 5"),
        Item("Figure 7", "not mentioned in the supplement's text", None, None, "nothing to go by"),
        Item("Figure 8", "time of the transform against the dense product", "walsh_hadamard/figure_8", "walsh-hadamard.md#the-transform-in-time",
             "no GPU; on a CPU the transform wins from small sizes on, in print from 512 to 1,024"),
    ),
    "sgrld": (
        Item("Figure 1", "an illustration of the Monge metric", None, "methods/metric-monge.md", "equations instead"),
        Item("Figure 2", "the funnel in four metrics", "sgrld/figure_2", f"{_NETWORKS}#the-funnel-figure-2",
             "agrees in what reaches deepest; the depth of Monge is largely the bias of the divergence that is left out"),
        Item("Table 1", "log probability and accuracy on MNIST", "sgrld/tables_1_2", _MNIST,
             "N = 400, three chains, N = 800, one to three chains, N = 1,200, three chains of five settings: agrees under the "
             "horseshoe in every metric, under the Gaussian prior to about 0.001 (N = 800 and 1,200: 0.002); with full "
             "matrices for vectors, as in the paper's equations but not in its authors' program, Shampoo diverged", _MNIST_COST),
        Item("Table 2", "curvature, seconds an epoch", "sgrld/tables_1_2", _MNIST,
             "curvature agrees with an epsilon of 1e-4 (by the epsilon of its inventors' program it is higher under the horseshoe); seconds relative to the identity agree but for Shampoo, dearer here",
             "with table 1"),
        Item("Figure 3", "curves against time", "sgrld/tables_1_2", _MNIST, "as table 1", "with table 1"),
        Item("Figure 4", "Monge's weight", "sgrld/tables_1_2", _MNIST,
             "three chains a weight: agrees; the fall after 1.25 in print is that of another learning rate", "with table 1"),
        Item("Table 3", "ResNet-20 on CIFAR-10", "sgrld/table_3", _CIFAR,
             "with statistics of batch normalisation frozen for sampling, beside filter response normalisation", _CIFAR_COST),
        Item("Table 3, small", "ResNet-8 on 10,000 images of CIFAR-10", "sgrld/table_3_small", _CIFAR,
             "ours: two seeds, 10 epochs", "4 hours of a core"),
        Item("Tables 4, 5", "learning rates", "sgrld/wenzel_edge", _MNIST,
             "taken over: they are inputs of the others; Wenzel's under the horseshoe lies just below the edge of stability"),
        Item("Table 6", "MNIST at equal time", "sgrld/tables_1_2", _MNIST, "as table 1", "with table 1"),
        Item("Table 7", "CIFAR-10 at equal time", "sgrld/table_3", _CIFAR, "as table 3", "with table 3"),
        Item("Table 8", "calibration on MNIST", "sgrld/tables_1_2", _MNIST, "as table 1", "with table 1"),
        Item("Table 9", "calibration on CIFAR-10", "sgrld/table_3", _CIFAR, "as table 3", "with table 3"),
        Item("Table 10", "mean confidence on MNIST", "sgrld/tables_1_2", _MNIST, "as table 1", "with table 1"),
    ),
}  # fmt: skip


def state(item: Item, known: Mapping[str, Experiment], results: Path = RESULTS) -> str:
    """Whether an item has been run, and how long that took, or what it will cost.

    Args:
        item: The item.
        known: Experiments by name.
        results: Folder of the records.

    Returns:
        A few words.
    """
    if item.experiment is None:
        return f"**not run**; expected: {item.cost}" if item.cost else "nothing to run"
    experiment = known[item.experiment]
    planned = list(experiment.pieces(experiment.config))
    pieces = load(experiment, results).pieces if path_of(experiment, results).exists() else []
    if not pieces:
        return f"**not run**; expected: {item.cost}" if item.cost else "**not run**"
    minutes = sum(piece["wall_time"] for piece in pieces) / 60
    took = f"{minutes:.0f} minutes" if minutes >= 1 else "under a minute"
    total, done = len(planned), sum(piece["labels"] in planned for piece in pieces)
    if done < total:
        return f"{done} of {total} pieces run, {took}" + (f"; expected: {item.cost}" if item.cost else "")
    return f"run, {took}"


def overview(paper: str, known: Mapping[str, Experiment], results: Path = RESULTS) -> str:
    """The list of a paper as a Markdown table.

    Args:
        paper: One of :data:`PAPERS`.
        known: Experiments by name.
        results: Folder of the records.

    Returns:
        The table.
    """
    rows = []
    for item in PAPERS[paper]:
        ours = f" ([{'ours beside it' if item.experiment else 'page'}]({item.place}))" if item.place else ""
        command = f": `{item.experiment.replace('/', '.')}`" if item.experiment else ""
        rows.append([item.name, item.subject + ours, item.note, state(item, known, results) + command])
    return table(["in print", "what", "what differs, and why", "state, and command"], rows, "llll")
