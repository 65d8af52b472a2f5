"""python -m pamcli"""

from pamcli.cli import main

main()
