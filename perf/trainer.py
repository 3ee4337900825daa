"""What the scripts that judge runs of train_gpt share: their options, and a run's report."""
import argparse
import json
import os
import subprocess
import sys
import tempfile


def parser_of(description, rounds, steps):
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default="build/release/bin", help="folder of train_gpt")
    parser.add_argument("--rounds", type=int, default=rounds, help="runs of each setting, taking turns (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=steps, help="of a run (default: %(default)s)")
    parser.add_argument("--ranks", type=int, default=2, help="of this machine (default: %(default)s)")
    return parser


def run(options, *arguments):
    """The report's runs; a run that fails ends the script with 2 and says why."""
    with tempfile.TemporaryDirectory() as folder:
        report = os.path.join(folder, "report.json")
        command = [os.path.join(options.bin, "train_gpt"), "--ranks", str(options.ranks), "--steps", str(options.steps),
                   "--sample", "0", "--report-json", report, *arguments]
        done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, timeout=600, check=False)
        if done.returncode != 0:
            print(f"{os.path.basename(sys.argv[0])}: {' '.join(command)} left {done.returncode}: {done.stderr.strip()}",
                  file=sys.stderr)
            sys.exit(2)
        with open(report, encoding="utf-8") as file:
            return json.load(file)["runs"]
