"""Run `pam view`."""

from pamcli.cli.console import Messages
from pamcli.settings.viewing import ViewSettings


def command(settings: ViewSettings, messages: Messages) -> None:
    """Show a result in the browser: image, disparity, depth, confidence, distances and point cloud.

    The page is served on this computer only, until Ctrl-C. Its address is printed on stdout.

    $ pam view disp.html
    $ pam view disp.pfm left.png --calibration calib.txt
    """
    console = messages.console()
    import webbrowser

    from pamcli.batch.viewing import open_server

    server = open_server(settings)
    try:
        console.result(server.address)
        console.inform("press Ctrl-C to stop")
        if not settings.no_browser and not webbrowser.open(server.address):
            console.warn("no browser found: open the address yourself")
        server.serve_forever()
    finally:
        server.server_close()
