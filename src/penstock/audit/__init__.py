"""PACKAGE DOC penstock.audit"""
