if [ -d /run/systemd/system ]; then
    systemctl daemon-reload || :
    # An upgrade restarts the agent; guests whose clients connect again ride that out.
    if [ "$1" -ge 1 ]; then systemctl try-restart parda.service || :; fi
fi
# The tool that makes the package gives it files alone.
if [ "$1" -eq 0 ]; then rmdir /usr/share/parda /usr/share/doc/parda /usr/share/licenses/parda 2> /dev/null || :; fi
